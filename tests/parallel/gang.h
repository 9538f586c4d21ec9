/* A gang whose ranks are threads of the test: job file -> plan -> ranks, as the controller and
 * tandem-node would do it, with what the ranks said written down. */
#ifndef TANDEM_TESTS_PARALLEL_GANG_H
#define TANDEM_TESTS_PARALLEL_GANG_H

#include <pthread.h>
#include <stdbool.h>

#include "golden.h"
#include "runtime/rank/rank.h"

#define GANG_MAX_RANKS 48
#define GANG_MAX_STEPS 64
#define GANG_MAX_CHECKPOINTS 16

/* What a test varies. Zero and NULL = the reference runs' own value. */
struct gang_spec {
    const struct golden *golden;
    int64_t data, tensor, micro, steps;
    int64_t zero_stage, shard_size; /* 0 */
    bool sequence_parallel;         /* false */
    int64_t batch;                  /* samples a step */
    const char *backend;            /* ref */
    const char *precision;          /* fp64 */
    const char *optimizer;          /* adamw with the reference runs' numbers */
    const char *lr_schedule;        /* theirs */
    const char *checkpoint;         /* "interval: 0, export_at_end: false" */
    const char *data_path;          /* train.bin of the case */
    const char *format;             /* u16 */
    const char *model_path;         /* folder of the case */
    const char *config;    /* random weights for this config.json, in place of the folder */
    const char *clip;      /* 1.0 */
    const char *bucket_mb; /* 0.05: several buckets */
    const char *order;     /* sequential */
    const char *window;    /* T+1 */
    const char *device;    /* what cuda computes on: h100 */
    int64_t mem_bytes;     /* of one such: 80 GiB */
};

/* The job file; the caller frees. */
char *gang_job_text(const struct gang_spec *spec);
/* Job file -> checked JobSpec -> Plan. Freed with plan__free_unpacked. */
Plan *gang_plan(const struct gang_spec *spec);

struct gang_rank {
    struct gang *gang;
    int idx;
    struct link *link;
    pthread_t thread;
    int rc;
    bool retryable;
    struct error err;
    bool done, paused; /* as reported */
    char fault[ERROR_TEXT_MAX];
};

struct gang {
    /* Set by the test; the rest is the gang's. */
    const Plan *plan;
    const char *job_dir;                  /* NULL: a temporary one for the run */
    const char *resume_dir;               /* NULL: from the model */
    const struct rank_observer *observer; /* NULL: nobody looks */
    bool queued_compute;                  /* so is every gang with TANDEM_QUEUED=1 */
    int64_t deadline_ms;                  /* of a collective; 0: long */
    int64_t stop_step;                    /* stops behind it; 0: goes on to the end */
    /* Called with each of rank 0's metrics, on its thread. */
    void (*on_step)(struct gang *g, const StepMetrics *m);

    struct gang_rank ranks[GANG_MAX_RANKS];
    int segment_fd;
    pthread_mutex_t lock; /* of what follows */
    int64_t num_steps, first_step;
    StepMetrics steps[GANG_MAX_STEPS];
    int num_checkpoints;
    char checkpoints[GANG_MAX_CHECKPOINTS][256]; /* below job_dir */
    int64_t checkpoint_steps[GANG_MAX_CHECKPOINTS];
    char export_dir[256];
};

/* Before the first run: only warnings in the log. */
void gang_quiet(void);
/* Runs all ranks to their end; whether that was a good one stands in ranks[].rc. */
void gang_run(struct gang *g);
/* The same, and every rank must have succeeded. */
void gang_run_well(struct gang *g);
/* What tandem-node does when a rank leaves badly: the others hear "rank CULPRIT left with HOW". -1:
 * there are no others. */
void gang_abort(int segment_fd, int culprit, const char *how);
/* To all ranks, as tandem-node does. */
void gang_command(struct gang *g, const RankDown *message);

/* The weights in a checkpoint of the plan's fp64 run, in the flat layout; the caller frees. */
double *gang_weights(const Plan *plan, const char *ckpt_dir);

/* A temporary job folder; gang_remove_dir takes it away again. */
char *gang_make_dir(void);
void gang_remove_dir(char *dir);

#endif
