/* The page of one job, in parts. */
#ifndef TANDEM_CLIENTS_CLI_SHOW_H
#define TANDEM_CLIENTS_CLI_SHOW_H

#include "base/buf.h"
#include "clients/cli/cli.h"
#include "clients/cli/human.h"

/* The name of a line, as wide as all of them. */
void show_label(const struct cli *cli, const char *name);
/* The lines that the run's curves are needed for: loss and speed. */
void show_curve(struct cli *cli, const Job *j);

/* Where its ranks are: the mesh, and a picture of nodes and devices. */
void show_placement(struct cli *cli, const Job *j);
/* How long an attempt ran; "runs", or "ends" where only its processes are still to go. */
const char *show_attempt_length(const Job *j, const AttemptInfo *a, char h[HUMAN_MAX]);
/* Each attempt: what it held, and for how long. */
void show_attempts(const struct cli *cli, const Job *j);
/* Its events, a line each; those that follow from one cause in one. */
void show_events(const struct cli *cli, const Job *j, struct buf *out);
/* What it had of the devices, and how long it waited. */
void show_use(const struct cli *cli, const Job *j);

#endif
