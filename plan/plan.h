/* JobSpec x model x data x devices -> Plan: pure arithmetic that the controller runs and the ranks
 * obey. Refusals are in the user's words: what doesn't fit, by how much, the nearest that does. */
#ifndef TANDEM_PLAN_PLAN_H
#define TANDEM_PLAN_PLAN_H

#include <stdbool.h>

#include "base/error.h"
#include "plan/spec_unbuilt.h"
#include "proto/names.h"

struct fabric;

/* What a plan is made from; all borrowed. spec has passed spec_check. devices: the ones chosen, in
 * rank order (placement[i] names node and device); for the plan at submit, those of an empty
 * cluster. */
struct plan_input {
    const JobSpec *spec;
    const ModelFacts *model;
    const DataFacts *const *train; /* num_train */
    size_t num_train;
    const ClusterSpec *cluster;
    const struct fabric *fabric;           /* of cluster; NULL = made of it here */
    const RankPlacement *const *placement; /* mesh size; NULL = found by plan/place.h */
    /* Cores of the host that runs all ranks on CPU devices, whatever its named nodes are said to
     * have; 0 = not known. */
    int32_t host_cores;
    /* The node whose GPUs a job can be started on: others are other hosts'; NULL = any one. */
    const char *gpu_node;
    /* GPUs of gpu_node that are not there: backend auto doesn't reckon with them, unless the job
     * fits nothing else. */
    int32_t num_gpus_gone;
    /* To look at: nobody has seen the data (num_train 0). For what needs no facts of it: training's
     * length in steps or tokens, no rows. */
    bool no_data;
    /* What spec_check_plan found; it becomes the plan's list, and what else can't be run is added
     * to that. NULL: a plan to be started; what can't be run is refused. */
    const struct spec_unbuilt *unbuilt;
    /* Where it is said that the devices have too little memory; the plan is made all the same, to
     * be looked at. Set to no error by whoever asks. NULL: that is refused. */
    struct error *too_little;
};

/* A gang of CPU devices is one host's; runtime/comm/comm_host.h holds no more. */
#define PLAN_HOST_MAX_RANKS 256

/* *out is freed with plan__free_unpacked(out, NULL); it shares nothing with the input. */
int plan_build(const struct plan_input *in, Plan **out, struct error *err);

/* plan->memory: the largest over all stages; each stage's in a note. Part of plan_build; again
 * where something of the plan was changed since, as its threads_per_rank. */
int plan_set_memory(Plan *plan, struct error *err);

/* Fails where the runtime can't run it, in words. */
int plan_check_built(const Plan *plan, struct error *err);
/* The same of a plan that came from elsewhere: whether all is there that a rank reads, too. */
int plan_check_received(const Plan *plan, struct error *err);

/* A few lines of it. Freed with plan_summary__free_unpacked. */
PlanSummary *plan_summary(const Plan *plan);

/* Steps of the job: from steps, tokens or epochs. samples_per_epoch > 0. */
int plan_total_steps(const JobSpec *spec, int64_t samples_per_epoch, int64_t *out,
                     struct error *err);

/* Time of a step by the plan's cost estimate (plan/cost.h), else at PLAN_ASSUMED_MFU of the ranks'
 * peak; 0 = the peak is not known. A guess to compare layouts and to plan a day by, no promise. */
#define PLAN_ASSUMED_MFU 0.5
double plan_step_seconds(const Plan *plan);

/* May a position of its data have no target? Then a step's divisor is counted (COUNT_TARGETS), else
 * it is global batch x seq_len. */
bool plan_can_ignore_targets(const Plan *plan);
/* Does it take a look at its data to plan it? */
bool plan_needs_data(const JobSpec *spec);

/* Samples in one pass. Rows where the format has them. Else, window "T": (num_tokens - 1) /
 * seq_len; "T+1": num_tokens / (seq_len + 1).
 */
int64_t plan_samples_per_epoch(const DataFacts *data, const SourceSpec *source, int64_t seq_len);

#endif
