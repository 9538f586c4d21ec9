#include "runtime/optim/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct optimizer {
    struct optimizer_options options;
    bool moments;
    double beta1, beta2;
    struct step_run *runs; /* owned */
    int32_t num_runs;
};

bool optimizer_has_moments(const OptimizerSpec *spec)
{
    return strcmp(spec->name, "adamw") == 0;
}

static struct step_run step_run(const struct optimizer_run *run, const OptimizerSpec *spec)
{
    return (struct step_run){
        .w = run->w,
        .g = run->g,
        .m = run->m,
        .low = run->low,
        .n = run->numel,
        .decay = run->decay ? spec->weight_decay : 0.0,
    };
}

int optimizer_new(struct optimizer **out, const struct optimizer_options *options,
                  struct error *err)
{
    struct optimizer *o = calloc(1, sizeof(*o));
    struct step_run *runs = calloc((size_t)options->num_runs + 1, sizeof(*runs));
    if (o == NULL || runs == NULL) {
        free(o);
        free(runs);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the optimizer");
    }
    const OptimizerSpec *spec = options->spec;
    o->options = *options;
    o->moments = optimizer_has_moments(spec);
    ASSERT(o->moments || strcmp(spec->name, "sgd") == 0);
    o->beta1 = spec->n_betas > 0 ? spec->betas[0] : 0.9;
    o->beta2 = spec->n_betas > 1 ? spec->betas[1] : 0.95;
    for (int32_t i = 0; i < options->num_runs; i++)
        runs[i] = step_run(&options->runs[i], spec);
    o->runs = runs;
    o->num_runs = options->num_runs;
    *out = o;
    return 0;
}

void optimizer_free(struct optimizer *o)
{
    if (o == NULL)
        return;
    free(o->runs);
    free(o);
}

int optimizer_step(struct optimizer *o, int64_t n, double lr, const double *grad_scale,
                   struct error *err)
{
    const struct optimizer_options *p = &o->options;
    const struct kernels *k = p->kernels;
    const struct step_args args = {
        .runs = o->runs,
        .num_runs = o->num_runs,
        .w = p->buffers.weights,
        .m = p->buffers.exp_avg,
        .v = p->buffers.exp_avg_sq,
        .g = p->buffers.grads,
        .low = p->buffers.low,
        .grad_scale = grad_scale,
        .lr = lr,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = p->spec->eps,
        .bias1 = 1.0 - pow(o->beta1, (double)n),
        .bias2 = 1.0 - pow(o->beta2, (double)n),
    };
    int rc = o->moments ? k->adamw(p->dev, p->stream, p->dtype, &args, err)
                        : k->sgd(p->dev, p->stream, p->dtype, &args, err);
    return rc == 0 ? 0 : error_wrap(err, "optimizer");
}
