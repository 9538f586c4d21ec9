/* A plan for people. */
#ifndef TANDEM_CLIENTS_CLI_PLAN_PRINT_H
#define TANDEM_CLIENTS_CLI_PLAN_PRINT_H

#include "plan/step_time.h"

void plan_print(const Plan *plan, const PlanSummary *summary, const ClusterSpec *cluster,
                const struct step_time *time);

#endif
