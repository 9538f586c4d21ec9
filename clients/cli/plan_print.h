/* A plan for people. */
#ifndef TANDEM_CLIENTS_CLI_PLAN_PRINT_H
#define TANDEM_CLIENTS_CLI_PLAN_PRINT_H

#include "plan/kernels.h"

/* table: its launches, where they can be predicted; NULL: the time is the formula's. */
void plan_print(const Plan *plan, const PlanSummary *summary, const ClusterSpec *cluster,
                const struct kernel_table *table);

#endif
