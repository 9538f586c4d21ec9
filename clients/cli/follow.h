/* Follows a job to its end over Jobs/Watch: restarts of the job and absences of the server
 * included. Used by watch, submit --follow and submit --wait. */
#ifndef TANDEM_CLIENTS_CLI_FOLLOW_H
#define TANDEM_CLIENTS_CLI_FOLLOW_H

#include "clients/cli/cli.h"

/* Ctrl-C: the usual code of an interrupted program. */
enum { EXIT_DETACHED = 130 };

/* quiet: nothing on stdout. The exit code: that of the job's end, EXIT_UNREACHABLE, or
 * EXIT_DETACHED. */
int follow_job(struct cli *cli, const char *ref, bool quiet);

#endif
