/* What store*.c share: the buffers, where each bucket's slice lies in them, and the events that
 * keep the three streams from writing what another one still reads.
 *
 * N ranks share one shard. The slice of a bucket at offset o with n elements is [o + i n / N,
 * + n / N) of rank i, and lies at o / N in a sharded buffer. With N = 1 nothing is shared, whatever
 * the stage. */
#ifndef TANDEM_RUNTIME_PARALLEL_STORE_PRIVATE_H
#define TANDEM_RUNTIME_PARALLEL_STORE_PRIVATE_H

#include "runtime/optim/optimizer.h"
#include "runtime/parallel/store.h"

#define STORE_MAX_SLOTS 16

/* Room for one bucket that is whole for a while. */
struct store_slot {
    char *mem; /* NULL = there is none */
    int64_t numel;
    int32_t bucket;     /* what lies here; -1 = nothing */
    struct event *free; /* fires when what lay here is no longer used */
    bool has_free;      /* it was recorded at all */
};

struct store_bucket {
    struct flat_range slice; /* of this rank; at: in sharded buffers */
    int64_t offset, numel;
    int32_t weight_slot, grad_slot; /* -1 = in none */
    struct event *gathered;         /* on the gather stream; NULL: never gathered */
    bool is_gathering;              /* compute has not waited for it yet */
    bool is_fresh;                  /* nothing was added to the slice in this step (zero 2, 3) */
};

/* Doubles in device memory, with which a step comes to its end. */
enum store_word {
    STORE_SQUARES, /* of the gradients, over all ranks */
    STORE_CHECKS,  /* two: 0, or NaN where the loss isn't finite, where a step before went wrong */
    STORE_CHECKED = STORE_CHECKS + 2, /* the sum of these three */
    STORE_NORM,
    STORE_SCALE,
    NUM_STORE_WORDS = 8, /* whole lines of scratch behind them */
};

struct store_unit {
    int32_t first_bucket, end_bucket; /* of its own parameters */
    int32_t tied_bucket;              /* the head's, where the embedding is tied; -1 */
};

struct store {
    struct store_options o;
    enum dtype wide;    /* of all but weights */
    int32_t zero_stage; /* 0 where nothing is shared */
    int32_t num_shards; /* N */
    int32_t num_buckets, num_units;
    struct store_bucket *buckets; /* owned */
    struct store_unit *units;     /* owned */

    /* Of the arenas; see store.h's table. */
    char *weights, *grads, *exp_avg, *exp_avg_sq;
    char *masters; /* NULL: the weights are wide themselves */
    struct store_slot weight_slots[STORE_MAX_SLOTS], grad_slots[STORE_MAX_SLOTS];
    int32_t num_weight_slots, num_grad_slots;

    struct flat_range whole;
    struct flat_range *owned; /* owned; [num_owned]; at: in sharded buffers */
    struct flat_range *sums;  /* owned; the same elements, at: in the gradients */
    int32_t num_owned;

    struct optimizer *optimizer; /* owned */
    struct span *counts; /* owned; elements of the gradients that this rank counts in the norm */
    int32_t num_counts;
    double *words; /* device memory, [NUM_STORE_WORDS] */
    void *scratch; /* behind them; for sums of squares */

    /* All NULL where this rank is alone. */
    struct stream *reduce, *gather; /* owned */
    struct event *computed;         /* compute has come to a collective on the reduce stream */
    struct event *reduced;          /* reduces started so far */
    struct event *updated;          /* the optimizer's last step */
    bool has_updated;

    store_bind_fn bind_weights, bind_grads; /* NULL until store_bind */
    void *bind_arg;
};

/* store_layout.c: slices, units, what is owned; runs of the optimizer and of the norm. */
int store_lay_out(struct store *s, struct error *err);
int store_open_optimizer(struct store *s, struct error *err);
int store_open_norm(struct store *s, struct error *err);

/* store_memory.c */
int store_open_memory(struct store *s, struct error *err);
void store_close_memory(struct store *s);

/* dst on stream to sees all that stream from has been given so far. */
int store_follow(struct store *s, struct event *e, struct stream *from, struct stream *to,
                 struct error *err);
/* store_reduce.c: zeroes what passes only add to, of the elements begin <= i < end, whole buckets,
 * whose gradients lie at mem. */
int store_zero_sums(struct store *s, char *mem, int64_t begin, int64_t end, struct error *err);
/* store_gather.c: the own slice of a bucket to all that share it, where weights are whole. */
int store_gather_in_place(struct store *s, int32_t bucket, struct error *err);
void store_tell_weights(struct store *s, int32_t bucket, void *base);
void store_tell_grads(struct store *s, int32_t bucket, void *base);

/* Element idx of a buffer of weights; of any other. */
static inline void *store_weight_at(const struct store *s, char *buffer, int64_t idx)
{
    return buffer + (size_t)idx * dtype_size(s->o.dtype);
}
static inline void *store_wide_at(const struct store *s, char *buffer, int64_t idx)
{
    return buffer + (size_t)idx * dtype_size(s->wide);
}

#endif
