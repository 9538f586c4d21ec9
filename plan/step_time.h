/* What a step is predicted to take, wherever that is asked: launch by launch (plan/kernels.h) of a
 * layout on GPUs that can be run, else by formula (plan/cost.h). */
#ifndef TANDEM_PLAN_STEP_TIME_H
#define TANDEM_PLAN_STEP_TIME_H

#include <stdbool.h>

#include "proto/names.h"

/* Of models with more layers than any has, the formula's: launches are played through one by one,
 * half a microsecond each. */
#define STEP_TIME_MAX_LAYERS 1024

struct step_time {
    double step_s; /* 0 = not known */
    double mfu;    /* of the ranks' peak; 0 = not known */
    bool by_launches;
};

/* cluster: the plan's. Some tens of milliseconds for 100 layers, however many micro-batches. */
struct step_time step_time_find(const Plan *plan, const ClusterSpec *cluster);
/* Quick: by formula, whatever it is. */
struct step_time step_time_by_formula(const Plan *plan);

#endif
