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

static int64_t param_end(const struct param_table *table, int32_t i)
{
    return i + 1 < table->num_params ? table->params[i + 1].offset : table->flat_numel;
}

static struct optimizer_run run_at(int64_t at, bool decay)
{
    return (struct optimizer_run){.w = at, .low = at, .g = at, .m = at, .decay = decay};
}

/* Padding goes with what lies before it: it is zero in all buffers and a step leaves zero there. */
int optimizer_table_runs(const struct param_table *table, struct optimizer_run **runs,
                         int32_t *num_runs, struct error *err)
{
    struct optimizer_run *out = calloc((size_t)table->num_params + 1, sizeof(*out));
    if (out == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the optimizer's runs");
    int32_t num = 0;
    for (int32_t i = 0; i < table->num_params; i++) {
        const struct param *p = &table->params[i];
        if (num == 0 || out[num - 1].decay != p->decay)
            out[num++] = run_at(p->offset, p->decay);
        out[num - 1].numel = param_end(table, i) - out[num - 1].w;
    }
    *runs = out;
    *num_runs = num;
    return 0;
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
