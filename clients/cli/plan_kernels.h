/* tandem plan --kernels: a step's launches with predicted times. */
#ifndef TANDEM_CLIENTS_CLI_PLAN_KERNELS_H
#define TANDEM_CLIENTS_CLI_PLAN_KERNELS_H

#include "clients/cli/cli.h"
#include "plan/kernels.h"

/* In the format asked for: table, csv (the rows alone), json. */
void plan_kernels_print(const struct cli *cli, const struct kernel_table *t, const Plan *plan);

#endif
