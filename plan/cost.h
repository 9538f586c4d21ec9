/* Seconds of a step, by formula: a prediction to compare layouts by, no promise. Compute runs at an
 * assumed share of the peak; collectives at what a rank gets of its axis' worst link (Plan.groups;
 * where they aren't known, communication counts as nothing). docs/planning.md has the formulas. */
#ifndef TANDEM_PLAN_COST_H
#define TANDEM_PLAN_COST_H

#include <stdbool.h>

#include "proto/names.h"

/* Idle time over busy time of a stage, by schedule: (p - 1) / m and its kin. */
double cost_bubble_ratio(const JobSpec *spec);

/* Bytes that a rank sends in a ring all-reduce; a reduce-scatter or all-gather sends half. */
double cost_all_reduce_bytes(double n, double buffer_bytes);

/* False: the peak is not known. The plan has stages and peak_flops. */
bool cost_estimate(CostEstimate *out, const Plan *plan, const char *device_type);

#endif
