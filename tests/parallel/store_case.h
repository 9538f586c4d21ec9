/* A store without layers: a made-up table over a few units, the list of actions that a plan would
 * give for it, gradients drawn from a hash, and what must come of them, summed one by one in rank
 * order. Ranks are threads. */
#ifndef TANDEM_TESTS_STORE_CASE_H
#define TANDEM_TESTS_STORE_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

/* What a test varies; zero = the default, which stands behind. */
struct store_case_spec {
    int32_t data, tensor;  /* ranks; 1 */
    int32_t zero_stage;    /* 0 */
    int32_t shard_size;    /* all data ranks */
    int32_t micro_batches; /* 1 */
    int32_t steps;         /* 1 */
    int32_t blocks;        /* 2 */
    int32_t kv_heads;      /* tensor; fewer = each lies on several tensor ranks */
    int32_t rows;          /* factor of the matrices' rows; 1 */
    bool tied;             /* the head uses the embedding */
    bool adamw;            /* sgd */
    bool queued;           /* compute is a stream with a thread of its own, as a GPU's is */
    bool ones;             /* every contribution to a gradient is 1 */
    int32_t bad_step;      /* the loss of step bad_step = 1.. is infinite; 0 = of none */
    uint64_t seed;         /* that it was drawn with: for messages */
    /* Rank `stops - 1` leaves in the first backward pass, saying so, or where this isn't NULL
     * without a word: then it is called. */
    int32_t stops;
    void (*silently)(void);
    /* Makes the plan's stage or list wrong: all ranks end with an error. */
    void (*spoil)(Stage *stage, Action *actions, size_t num_actions);
};

struct store_case_result {
    double norm;          /* of the last step: the same bits on every rank, or the test fails */
    int64_t num_elements; /* logical, of the whole model */
    int32_t num_failed;   /* ranks that ended with an error */
    char error[512];      /* one of theirs */
};

/* Runs it; fails the test where gradients, norm, weights or moments are not what they must be, and
 * where a rank failed without any having been told to stop. */
struct store_case_result store_case_run(const struct store_case_spec *spec);

#endif
