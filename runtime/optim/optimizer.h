/* AdamW or SGD over the flat buffers. It knows nothing of layers: parameters that lie side by side
 * and agree about weight decay are updated in one call. */
#ifndef TANDEM_RUNTIME_OPTIM_OPTIMIZER_H
#define TANDEM_RUNTIME_OPTIM_OPTIMIZER_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "plan/params.h"
#include "proto/names.h"

struct optimizer;

/* The flat buffers of a rank, in the layout of the table. exp_avg and exp_avg_sq: adamw only. */
struct optimizer_buffers {
    void *weights, *grads;
    void *exp_avg, *exp_avg_sq;
};

struct optimizer_options {
    const OptimizerSpec *spec; /* checked; borrowed */
    const struct param_table *table;
    struct optimizer_buffers buffers;
    enum dtype dtype;
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
};

/* Does this optimizer keep moments? */
bool optimizer_has_moments(const OptimizerSpec *spec);

int optimizer_new(struct optimizer **out, const struct optimizer_options *options,
                  struct error *err);
void optimizer_free(struct optimizer *o);

/* Step n = 1..: the bias corrections count from there. Gradients are multiplied by grad_scale. */
int optimizer_step(struct optimizer *o, int64_t n, double lr, double grad_scale, struct error *err);

#endif
