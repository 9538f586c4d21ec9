/* Which device each rank runs on, and what follows from it: threads a rank, peak, memory. */
#ifndef TANDEM_PLAN_PLACEMENT_H
#define TANDEM_PLAN_PLACEMENT_H

#include "base/error.h"
#include "plan/plan.h"

/* Fills plan->placement (by rank, owned by the plan) from in->placement, or with the first free
 * devices of the cluster that suit resources.type and resources.nodes, in the cluster's order;
 * local ranks are counted here. Then threads_per_rank and peak_flops. */
int placement_build(Plan *plan, const struct plan_input *in, struct error *err);

/* Does every rank's estimate fit the memory of its device, and those of a node together into the
 * node's? A size of 0 is not known and not checked. */
int placement_check_memory(const Plan *plan, const ClusterSpec *cluster, struct error *err);

#endif
