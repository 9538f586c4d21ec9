/* The few numbers that all ranks sum besides gradients, as doubles in device memory. Each rank puts
 * in what it has to say, 0 where another says it. */
#ifndef TANDEM_RUNTIME_RANK_WORDS_H
#define TANDEM_RUNTIME_RANK_WORDS_H

#include "runtime/rank/state.h"

enum word {
    /* Summed in one exchange each step. */
    WORD_LOSS,     /* negative log likelihoods; of tensor rank 0 of each data rank */
    WORD_BOUNDARY, /* what rank 0 decided for the end of this step (enum boundary) */
    NUM_STEP_WORDS,
    /* Counted before the forward pass, by tensor rank 0 of each data rank. */
    WORD_TARGETS = NUM_STEP_WORDS,
    WORD_TOKENS,
    WORD_ATTENDED,
    NUM_COUNTS = 3,
    WORD_SCRATCH = WORD_ATTENDED + 1,
    /* One for each rank: what it found wrong, when a step isn't finite. */
    WORD_RANKS,
};

/* Values into words first ... first + n - 1, which then stay until a words_get: compute may come to
 * them only later. */
int words_put(struct rank *r, enum word first, const double *values, int64_t n, struct error *err);
/* The same with zeros, at any time. */
int words_clear(struct rank *r, enum word first, int64_t n, struct error *err);
/* Starts their sum over all ranks. what: for errors. */
int words_sum(struct rank *r, enum word first, int64_t n, const char *what, struct error *err);
/* Behind store_wait: what they are. Waits for compute. */
int words_get(struct rank *r, enum word first, double *values, int64_t n, struct error *err);

#endif
