/* A gang whose ranks are real tandem-rank processes, the test in the place of tandem-node and the
 * controller: it starts them, hands the communicators' id on, and writes down what they say. */
#ifndef TANDEM_TESTS_PARALLEL_PROCESS_GANG_H
#define TANDEM_TESTS_PARALLEL_PROCESS_GANG_H

#include "gang.h"

struct process_gang_rank {
    pid_t pid;  /* 0: it has been waited for */
    int status; /* then: as waitpid gives it */
    int fd;     /* our end of the link; -1: closed */
    struct link_decoder *decoder;
    bool done, paused; /* as reported */
    char fault[ERROR_TEXT_MAX];
};

struct process_gang {
    /* Set by the test; the rest is the gang's. */
    const Plan *plan;
    const char *job_dir;    /* the ranks' logs lie in it, as rank-R.log */
    const char *resume_dir; /* NULL: from the model */
    const char *bin_dir;    /* where tandem-rank lies; NULL: as built */
    const char *const *env; /* NAME=VALUE, ..., NULL: set for the ranks; NULL = nothing is */
    /* Of simulated GPUs, THREADS,STREAMS: each rank has another seed, from seed on. NULL = theirs.
     */
    const char *schedule;
    int64_t seed;
    int64_t stop_step;   /* stops behind it; 0: goes on to the end */
    int64_t deadline_ms; /* of all of it; 0 = ten minutes */
    /* Called with each of rank 0's metrics. */
    void (*on_step)(struct process_gang *g, const StepMetrics *m);

    int num_ranks, segment_fd;
    struct process_gang_rank ranks[GANG_MAX_RANKS];
    int64_t num_steps, first_step;
    StepMetrics steps[GANG_MAX_STEPS];
    int num_checkpoints;
    char checkpoints[GANG_MAX_CHECKPOINTS][256]; /* below job_dir */
    int64_t checkpoint_steps[GANG_MAX_CHECKPOINTS];
    char export_dir[256];
    MemoryUse memory; /* of rank 0, as it said last */
};

/* Runs all ranks to their end, and says nothing about how good that was. When a rank leaves badly
 * the others are ended, as tandem-node does it. No process is left, also where the test fails. */
void process_gang_run(struct process_gang *g);
/* The same, and every rank must have succeeded; else the test fails with the ranks' words. what:
 * for that. */
void process_gang_run_well(struct process_gang *g, const char *what);
/* To all ranks. */
void process_gang_command(struct process_gang *g, const RankDown *message);

#endif
