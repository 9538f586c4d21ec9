/* A Llama-shaped model on one device: forward and backward, unit by unit, over the table of
 * operations. It knows nothing of layouts: weights and gradients are places in flat buffers, and
 * the caller walks the units in the order of the plan's action list.
 *
 * Units, forward numbering: 0 embed, 1..L blocks, L+1 final norm + head + loss. */
#ifndef TANDEM_RUNTIME_LAYERS_MODEL_H
#define TANDEM_RUNTIME_LAYERS_MODEL_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "plan/params.h"
#include "proto/names.h"

struct model;

struct model_options {
    const ModelConfig *config;
    const struct param_table *table;
    enum dtype dtype;
    int64_t micro_batch_size; /* sequences a forward pass */
    int64_t seq_len;
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream; /* compute */
    void *weights;         /* flat, borrowed */
    void *grads;           /* flat, borrowed; NULL = forward only */
};

/* Allocates all activations and workspace once. */
int model_new(struct model **out, const struct model_options *options, struct error *err);
void model_free(struct model *m);

/* ids, targets [micro * seq_len] int32, in device memory, valid until the micro-batch's backward is
 * done. targets may be NULL: no loss. */
void model_set_batch(struct model *m, const int32_t *ids, const int32_t *targets);
/* Forward-only models of one sequence: from now on a forward pass computes positions past ..
 * past + num - 1 (ids hold those num tokens, logits are [num, V]) and goes on from the keys and
 * values that earlier passes left for 0 .. past - 1. past + num is at most seq_len. */
void model_set_span(struct model *m, int64_t past, int64_t num);
/* Units unit_begin <= u < unit_end, ascending. The head's unit adds the sum of the micro-batch's
 * negative log likelihoods to *loss_sum (double, device memory) and seeds the backward pass with
 * dloss (= 1 / valid targets of the whole step). */
int model_forward(struct model *m, int32_t unit_begin, int32_t unit_end, double dloss,
                  double *loss_sum, struct error *err);
/* The same units, descending. Gradients of parameters are accumulated. */
int model_backward(struct model *m, int32_t unit_begin, int32_t unit_end, struct error *err);
/* After a forward pass without backward: logits [micro * seq_len, V] (of a span: its own) in device
 * memory. Only where grads is NULL (with gradients the buffer is overwritten by dlogits). */
const void *model_logits(const struct model *m);

#endif
