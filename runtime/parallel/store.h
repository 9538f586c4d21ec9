/* A rank's state: weights, gradients and moments in flat buffers, whole or shared out as zero_stage
 * says, and the collectives that the action list orders on them. Replicated data parallel is the
 * case of one rank to a shard. It knows buckets and slots, no layers and no schedule.
 *
 *              weights             gradients                          moments, masters
 *   stage 0    whole               whole                              whole
 *   stage 1    whole               whole, own slices summed           own slices
 *   stage 2    whole               own slices; a unit's in a slot     own slices
 *   stage 3    own slices; a unit's in a slot   (as stage 2)          own slices
 *
 * Weights that are bf16 have masters in fp32: those are what is filled, trained and saved, and the
 * weights are their copies, rounded anew with each step. Everything but the weights is of the wide
 * type; sums over data ranks, too.
 *
 * Two streams with threads of their own: reduce and gather. There are only sums here; the loss was
 * seeded with 1 / (valid targets of the whole step).
 * Source: Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP; hybrid sharding). */
#ifndef TANDEM_RUNTIME_PARALLEL_STORE_H
#define TANDEM_RUNTIME_PARALLEL_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "plan/params.h"
#include "plan/pieces.h"
#include "proto/names.h"
#include "runtime/parallel/arenas.h"
#include "runtime/parallel/axes.h"

struct store;

/* The store tells where a bucket's weights and gradients lie whole from now on (host-side; NULL =
 * nowhere): the layers' model_bind_weights and model_bind_grads. */
typedef void (*store_bind_fn)(void *arg, int32_t bucket, void *base);

struct store_options {
    struct device *dev;
    const struct kernels *kernels;
    struct stream *compute;
    const struct axes *axes;         /* borrowed */
    struct arenas *arenas;           /* borrowed; where its memory comes from */
    const Plan *plan;                /* borrowed */
    const Stage *stage;              /* this rank's, in plan */
    const struct param_table *table; /* borrowed */
    enum dtype dtype;                /* of the weights, as layers see them */
    bool moments;
};

int store_new(struct store **out, const struct store_options *options, struct error *err);
/* After a failed step too: what is under way ends with the communicators' error. Compute has come
 * to its end (synced). */
void store_free(struct store *s);
/* Tells all that is bound by now (whole buffers), and from then on every change. */
void store_bind(struct store *s, store_bind_fn weights, store_bind_fn grads, void *arg);

/* What lies here: buffer, and which elements of the flat layout it holds; of gradients: those whose
 * sum over all ranks it holds behind store_wait (with stage 1 the own slices of a whole buffer).
 * Whole weights are whole behind store_await_weights of all units. Masters: where there are none,
 * the weights. All but the weights have dtype_wide of the store's type. Valid as long as the store.
 */
struct store_view {
    void *data;                      /* device memory; NULL = none (moments with sgd) */
    const struct flat_range *ranges; /* ascending */
    int32_t num_ranges;
    int64_t numel; /* of the buffer */
};
enum store_part { STORE_WEIGHTS, STORE_GRADS, STORE_EXP_AVG, STORE_EXP_AVG_SQ, STORE_MASTERS };
struct store_view store_view(const struct store *s, enum store_part part);
/* The elements whose optimizer step is this rank's (all with stage 0), with their places in the
 * moments. Replicas of a shard (axes) have the same ones. */
const struct flat_range *store_owned(const struct store *s, int32_t *num);

/* The masters that lie here were filled: makes the weights of them, whole again where they are
 * whole. Without masters the weights were; of an accelerator's those that this rank owns alone, so
 * that whole ones are still to be gathered. All ranks call it. */
int store_publish(struct store *s, struct error *err);

/* ---- actions (plans.proto: ActionKind) ---- */

/* Begins the gradients that outlive a micro-batch, as store_open_grads does others: zeroes what
 * passes only add to. What is one product's (params_is_product) keeps whatever lies there. */
int store_begin_step(struct store *s, struct error *err);
int store_gather(struct store *s, int32_t bucket, int32_t slot, struct error *err);
int store_release(struct store *s, int32_t bucket, struct error *err);
int store_open_grads(struct store *s, int32_t bucket, int32_t slot, struct error *err);
int store_reduce_partial(struct store *s, int32_t unit, struct error *err);
int store_reduce_bucket(struct store *s, int32_t bucket, bool final, struct error *err);
/* Does the backward pass of this micro-batch find gradients that were begun and not added to? Then
 * products are written there. */
bool store_grads_are_new(const struct store *s, int32_t micro_batch);
/* Makes compute wait for the gathers of the units' weights that are under way; before their FORWARD
 * or BACKWARD, and of all units before whole weights are looked at. */
int store_await_weights(struct store *s, int32_t unit_begin, int32_t unit_end, struct error *err);
/* Starts the sum of words [n] (device memory) over all ranks. what: "loss", for errors. */
int store_reduce_words(struct store *s, double *words, int64_t n, const char *what,
                       struct error *err);
/* Makes compute wait for all reduces that were started; the first failed collective's error. */
int store_wait(struct store *s, struct error *err);
/* Works out the L2 norm of the gradients of the whole model, every logical element once: what a
 * tensor rank holds as well as another is counted by one, what replicas of a shard hold by each of
 * them in part, and a tied embedding has one place. All ranks call it and get the same bits. After
 * store_wait; nobody waits for it.
 * With it the factor that clips to the job's clip_grad_norm: NaN where the norm isn't finite or
 * *loss isn't (device memory, the same on all ranks; NULL = don't look), and from then on for ever:
 * the weights stay as they were before the step that went wrong. */
int store_norm(struct store *s, const double *loss, struct error *err);
/* What it worked out, in device memory: the norm and that factor. */
const double *store_norm_words(const struct store *s);
/* *out (device memory) = sum of squares of n gradients that lie at x, on the compute stream. */
int store_sum_squares(struct store *s, double *out, const void *x, int64_t n, struct error *err);
/* Step n = 1.. over the owned elements (runtime/optim). Gradients are multiplied by the factor that
 * the last store_norm worked out. */
int store_optimizer_step(struct store *s, int64_t n, double lr, struct error *err);

#endif
