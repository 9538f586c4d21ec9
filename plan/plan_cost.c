/* The time estimate of a plan. */
#include "plan/plan_parts.h"

#include <stdlib.h>
#include <string.h>

#include "plan/cost.h"

/* Type of the first rank's device; a gang is of one type. */
static const char *device_type(const Plan *plan, const ClusterSpec *cluster)
{
    const RankPlacement *first = plan->placement[0];
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        const NodeInfo *node = cluster->nodes[i];
        for (size_t j = 0; strcmp(node->name, first->node) == 0 && j < node->n_devices; j++) {
            if (node->devices[j]->index == first->device) {
                return node->devices[j]->type;
            }
        }
    }
    return NULL;
}

/* A device that wasn't measured has its type's figure. */
static double type_peak(const ClusterSpec *cluster, const char *type, const char *precision)
{
    for (size_t i = 0; type && i < cluster->n_types; i++) {
        const DeviceType *t = cluster->types[i];
        if (strcmp(t->name, type) == 0) {
            return strcmp(precision, "fp64") == 0   ? t->peak_flops_fp64
                   : strcmp(precision, "fp32") == 0 ? t->peak_flops_fp32
                                                    : t->peak_flops_bf16;
        }
    }
    return 0;
}

void plan_set_cost(Plan *plan, const ClusterSpec *cluster)
{
    const char *type = device_type(plan, cluster);
    if (plan->peak_flops <= 0 && strcmp(plan->backend, "cuda") == 0) {
        plan->has_peak_flops = 1;
        plan->peak_flops = type_peak(cluster, type, plan->spec->training->precision);
    }
    CostEstimate cost;
    if (cost_estimate(&cost, plan, type)) {
        plan->cost = malloc(sizeof *plan->cost);
        ASSERT(plan->cost);
        *plan->cost = cost;
    }
}
