/* The few numbers that all ranks sum besides gradients, as doubles in device memory. Each rank puts
 * in what it has to say, 0 where another says it.
 *
 * On both ways they pass through pinned memory of the host, and neither way waits: what was said
 * for a step lies in one of two sets by turns until compute comes to it, and what is to be read of
 * a step arrives in a reading, behind which stands an event. */
#ifndef TANDEM_RUNTIME_RANK_WORDS_H
#define TANDEM_RUNTIME_RANK_WORDS_H

#include "runtime/rank/state.h"

enum word {
    /* Summed in one exchange each step. */
    WORD_LOSS,     /* negative log likelihoods; of tensor rank 0 of each data rank */
    WORD_BOUNDARY, /* what rank 0 decided for the end of this step (enum boundary) */
    WORD_NEXT,     /* the same for the step behind it */
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

/* Behind a step's own words in its reading. */
enum { READ_NORM = NUM_STEP_WORDS };

int words_open(struct rank *r, struct error *err);
/* Compute has come to its end (synced). */
void words_close(struct rank *r);

/* Values of a step into words first ... first + n - 1. Of the step two before it all has been read.
 */
int words_put(struct rank *r, int64_t step, enum word first, const double *values, int64_t n,
              struct error *err);
/* The same with zeros, at any time. */
int words_clear(struct rank *r, enum word first, int64_t n, struct error *err);
/* Starts their sum over all ranks. what: for errors. */
int words_sum(struct rank *r, enum word first, int64_t n, const char *what, struct error *err);

/* Sends n doubles of device memory, as compute finds them, to place `at` of the reading; then that
 * is all: the reading is whole when its event fires. */
int words_send(struct rank *r, struct reading *to, int64_t at, const double *from, int64_t n,
               struct error *err);
int words_sent(struct rank *r, struct reading *to, struct error *err);
/* Waits for that. The first error of what was before it on compute. */
int words_arrive(struct rank *r, struct reading *from, struct error *err);

/* Behind store_wait: what they are, at once. Waits for compute. */
int words_get(struct rank *r, enum word first, double *values, int64_t n, struct error *err);

/* For what all ranks read of one sum and leave by. Who leaves ends the gang, and with it another's
 * wait for that very sum, though it has come to its end there, too: an accelerator's waits hear of
 * an abort whatever they waited for. This comes back when all have come to it, so all have read;
 * or when the gang is ending by something else. */
void words_meet(struct rank *r);

#endif
