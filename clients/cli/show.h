/* The page of one job, in parts. */
#ifndef TANDEM_CLIENTS_CLI_SHOW_H
#define TANDEM_CLIENTS_CLI_SHOW_H

#include "clients/cli/cli.h"

/* The name of a line, as wide as all of them. */
void show_label(const struct cli *cli, const char *name);
/* The lines that the run's curves are needed for: loss and speed. */
void show_curve(struct cli *cli, const Job *j);

#endif
