/* The page of one job, in parts. */
#ifndef TANDEM_CLIENTS_CLI_SHOW_H
#define TANDEM_CLIENTS_CLI_SHOW_H

#include "clients/cli/cli.h"

/* The name of a line, as wide as all of them. */
void show_label(const struct cli *cli, const char *name);
/* The lines that the run's curves are needed for: loss and speed. */
void show_curve(struct cli *cli, const Job *j);

/* Where its ranks are: the mesh, and a picture of nodes and devices. */
void show_placement(struct cli *cli, const Job *j);
/* Each attempt: what it held, and for how long. */
void show_attempts(const struct cli *cli, const Job *j);
/* What it had of the devices, and how long it waited. */
void show_use(const struct cli *cli, const Job *j);

#endif
