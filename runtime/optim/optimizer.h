/* AdamW or SGD over runs of elements: those whose step is this rank's. It knows neither layers nor
 * who owns what; all runs are updated in one call. */
#ifndef TANDEM_RUNTIME_OPTIM_OPTIMIZER_H
#define TANDEM_RUNTIME_OPTIM_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "proto/names.h"

struct optimizer;

/* exp_avg and exp_avg_sq: adamw only. low: bf16 copies of the weights, written with them; or NULL.
 */
struct optimizer_buffers {
    void *weights, *low, *grads;
    void *exp_avg, *exp_avg_sq;
};

/* Elements that lie side by side in all of the buffers, and one rule of decay. w, low, g, m: where
 * they begin in the weights, their copies, the gradients and the moments. */
struct optimizer_run {
    int64_t w, low, g, m, numel;
    bool decay;
};

struct optimizer_options {
    const OptimizerSpec *spec; /* checked; borrowed */
    struct optimizer_buffers buffers;
    const struct optimizer_run *runs; /* copied */
    int32_t num_runs;
    enum dtype dtype; /* of all but low */
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
};

/* Does this optimizer keep moments? */
bool optimizer_has_moments(const OptimizerSpec *spec);

int optimizer_new(struct optimizer **out, const struct optimizer_options *options,
                  struct error *err);
void optimizer_free(struct optimizer *o);

/* Step n = 1..: the bias corrections count from there. Gradients are multiplied by *grad_scale, in
 * device memory; NULL = 1. Where that isn't finite nothing changes. */
int optimizer_step(struct optimizer *o, int64_t n, double lr, const double *grad_scale,
                   struct error *err);

#endif
