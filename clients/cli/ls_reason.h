/* Why the jobs of a list are in their states: what `show` tells of each, in a few words. */
#ifndef TANDEM_CLIENTS_CLI_LS_REASON_H
#define TANDEM_CLIENTS_CLI_LS_REASON_H

#include "clients/cli/cli.h"
#include "clients/cli/collect.h"

/* Jobs that wait are asked about, so many of a list at most: each answer takes the server a look at
 * the whole queue. */
enum { LS_REASONS_MAX = 20, LS_REASON_COLUMNS = 60 };

/* Sets message of queued jobs, the oldest ones, to what they wait for now. jobs: newest first. */
void ls_reason_fill(struct cli *cli, const struct collect *jobs);
/* Has one of them a reason? */
bool ls_reason_any(const struct collect *jobs);
/* The job's, cut to so many bytes of a line; "" = none. */
const char *ls_reason_short(const Job *j, char out[LS_REASON_COLUMNS + 8]);

#endif
