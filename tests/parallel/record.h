/* What a run's ranks held, as whole tensors: gradients of the first step, and the state after the
 * last one. */
#ifndef TANDEM_TESTS_PARALLEL_RECORD_H
#define TANDEM_TESTS_PARALLEL_RECORD_H

#include "gang.h"
#include "whole.h"

struct record {
    const Plan *plan;
    struct rank_observer observer; /* for gang.observer */
    bool moments;
    struct whole grads, weights, exp_avg, exp_avg_sq;
    /* With bf16: weights are the masters, low what layers see: each rounded once. */
    bool masters;
    struct whole low;
    /* Rank by rank, without a look at what others hold: set by the test, or NULL. */
    void (*on_gradients)(struct record *r, int32_t rank, const struct param_table *table,
                         const struct axes *axes, const struct store *store);
    void *arg; /* for it */
};

void record_init(struct record *r, const Plan *plan);
void record_free(struct record *r);

/* A run of a gang and what it recorded. Not copied: the record's observer points into it. */
struct run {
    Plan *plan;
    struct gang gang;
    struct record record;
};
/* Runs all ranks to a good end, and checks that what they held fits together; fails the test
 * otherwise, behind the words of what. job_dir: NULL = a temporary one. */
void run_well(struct run *r, const struct gang_spec *spec, const char *job_dir, const char *what);
/* The same in two parts, for a test that sets record.on_gradients between them. */
void run_prepare(struct run *r, const struct gang_spec *spec);
void run_go(struct run *r, const char *what);
void run_free(struct run *r);

#endif
