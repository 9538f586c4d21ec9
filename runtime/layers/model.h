/* A dense decoder on one device: forward and backward, unit by unit, over the table of operations.
 * Llama, Qwen2, Qwen3 and GPT-2 are one set of layers; which parts a model has is read from the
 * roles of its parameters. It knows a layout through parallel/tp.h alone: weights and gradients are
 * places in buckets, told from outside, and the caller walks the units in the order of the plan's
 * action list.
 *
 * Units, forward numbering: 0 embed, 1..L blocks, L+1 final norm + head + loss. */
#ifndef TANDEM_RUNTIME_LAYERS_MODEL_H
#define TANDEM_RUNTIME_LAYERS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "plan/params.h"
#include "proto/names.h"
#include "runtime/parallel/arenas.h"
#include "runtime/parallel/tp.h"

struct model;

struct model_options {
    const ModelConfig *config;
    const struct param_table *table;
    enum dtype dtype;         /* of weights and activations; gradients are of its wide type */
    int64_t micro_batch_size; /* sequences a forward pass */
    int64_t seq_len;
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream; /* compute */
    const struct tp *tp;   /* its comm is borrowed; NULL = one rank */
    bool trains;           /* false = forward only */
    /* Borrowed; where all its memory comes from (plan/memory_activations.c says how much). What is
     * summed over tensor ranks lies in the shared segment, where that needs no copy. NULL = device
     * memory of its own; one rank only. */
    struct arenas *arenas;
};

/* Allocates all activations and workspace once. */
int model_new(struct model **out, const struct model_options *options, struct error *err);
void model_free(struct model *m);

/* From now on the weights, or the gradients, of a bucket of the table lie whole at base (NULL =
 * nowhere): of what is enqueued from here on. A store_bind_fn; model is a struct model. */
void model_bind_weights(void *model, int32_t bucket, void *base);
void model_bind_grads(void *model, int32_t bucket, void *base);
/* Says where the weights and gradients of these units lie just now: the same number for the same
 * places, and another for others. */
uint64_t model_places(const struct model *m, int32_t unit_begin, int32_t unit_end);
/* All buckets, from flat buffers as the table lays them out; grads NULL = none. */
void model_bind_whole(struct model *m, void *weights, void *grads);

/* One micro-batch, in device memory, each [micro_batch_size * seq_len] and valid until its backward
 * is done. */
struct batch {
    const int32_t *ids;
    const int32_t *targets;   /* -100 = ignored; NULL = no loss */
    const int32_t *positions; /* 0 .. seq_len - 1; NULL = r % seq_len */
    const int32_t *segments;  /* tokens see those of their own segment; NULL = one a sequence */
};
void model_set_batch(struct model *m, const struct batch *batch);
/* Forward-only models of one sequence: from now on a forward pass computes positions past ..
 * past + num - 1 (ids hold those num tokens, logits are [num, V]) and goes on from the keys and
 * values that earlier passes left for 0 .. past - 1. past + num is at most seq_len. */
void model_set_span(struct model *m, int64_t past, int64_t num);
/* Units unit_begin <= u < unit_end, ascending. The head's unit adds the sum of the micro-batch's
 * negative log likelihoods to *loss_sum (double, device memory; each tensor rank the same number)
 * and seeds the backward pass with dloss (= 1 / valid targets of the whole step). */
int model_forward(struct model *m, int32_t unit_begin, int32_t unit_end, double dloss,
                  double *loss_sum, struct error *err);
/* The same units, descending; after a failure the model is as before, so it may be called again.
 * Gradients of parameters are accumulated; but where is_first says that nothing is there yet to be
 * added to, those that are one product's (params_is_product) are written, whatever lies there. How
 * those of one tensor rank must still be summed says the table (enum param_sum). */
int model_backward(struct model *m, int32_t unit_begin, int32_t unit_end, bool is_first,
                   struct error *err);
/* After a forward pass without backward: logits [micro * seq_len, V] (of a span: its own) in device
 * memory, of this tensor rank's part of the vocabulary. Only where the model doesn't train (else
 * the buffer is overwritten by dlogits). */
const void *model_logits(const struct model *m);
/* The residual stream behind unit u (0 embed, 1..L blocks) as the last forward pass left it: this
 * rank's rows, [tp_own_rows, hidden] in device memory. Only where the model trains. */
const void *model_residual(const struct model *m, int32_t unit);

#endif
