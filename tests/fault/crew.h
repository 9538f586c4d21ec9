/* Real ranks of a real plan below the gang of tandem-node, the test in the controller's place: it
 * starts them, looks on, and hears how they ended. */
#ifndef TANDEM_TESTS_FAULT_CREW_H
#define TANDEM_TESTS_FAULT_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

#define CREW_MOST 16
#define CREW_STEPS 64

struct crew_layout {
    int data, tensor, zero_stage, shard_size;
    bool sequence, gpt2;
    int micro; /* samples of a micro-batch; 0 = 1 */
};

/* The plan of a tiny reference model, fp64 in plain loops; checkpoints every `interval` steps.
 * Freed with plan__free_unpacked. */
Plan *crew_plan(const struct crew_layout *layout, int64_t steps, int64_t interval);
/* "data 2, tensor 2, ZeRO-1" */
const char *crew_layout_name(const struct crew_layout *layout, char out[96]);

struct crew_options {
    const Plan *plan;
    const char *program; /* tandem-rank, or what stands in for it */
    const char *job_dir;
    int64_t stopped_ms;     /* 0 = as in production */
    int64_t abort_grace_ms; /* for the others to leave by themselves */
    int32_t attempt;
};

/* How it ended. */
struct crew_end {
    int32_t num_ranks;
    bool finished;
    int32_t first_failed;
    char message[700];
    ExitKind kind[CREW_MOST];
    char why[CREW_MOST][700];
    int64_t last_step, num_steps; /* heard of */
    double loss[CREW_STEPS + 1];  /* by step */
    int64_t took_ms;
};

struct crew;
/* From the newest checkpoint of its folder, if there is one. */
struct crew *crew_start(const struct crew_options *options);
/* Until so many ms have passed, or all have left. */
void crew_watch(struct crew *c, int64_t ms);
/* Pid of a rank; 0 = it isn't there (yet, or any more). */
int crew_pid(const struct crew *c, int32_t rank);
/* Waits until all have left, which they have to within limit_ms; no process may be left. Frees. */
void crew_end(struct crew *c, int64_t limit_ms, struct crew_end *out);

#endif
