/* The fronts of a step's end: sums, clipping, the optimizers. Lists come from the caller's memory,
 * which is his again when a call returns: each entry goes into the stream by itself. */
#include "kernels/host/front.h"

#include <math.h>

/* One plain order for every backend: a step sums a few thousand losses. */
static void sum_double_loop(struct pool *pool, const void *args)
{
    (void)pool;
    const struct sum_args *a = args;
    const double *x = a->x;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        sum += x[i];
    }
    *a->out = sum;
}

int front_sum_double(struct device *dev, struct stream *s, double *out, const double *x, int64_t n,
                     struct error *err)
{
    struct sum_args a = {.out = out, .x = x, .n = n};
    return front_submit(dev, s, "sum_double", sum_double_loop, &a, sizeof a, err);
}

/* Of each span into the workspace, then the sum of these. */
int front_sum_squares(struct device *dev, struct stream *s, enum dtype t, double *out,
                      const void *x, const struct span *spans, int32_t num_spans, void *workspace,
                      struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "sum_squares", t, err);
    }
    double *parts = workspace;
    for (int32_t i = 0; i < num_spans; i++) {
        ASSERT(spans[i].at >= 0 && spans[i].n >= 0);
        struct sum_args a = {.out = &parts[i],
                             .x = (const char *)x + (size_t)spans[i].at * dtype_size(t),
                             .n = spans[i].n};
        if (front_submit(dev, s, "sum_squares", l->sum_squares, &a, sizeof a, err) != 0) {
            return -1;
        }
    }
    struct sum_args a = {.out = out, .x = parts, .n = num_spans};
    return front_submit(dev, s, "sum_squares", sum_double_loop, &a, sizeof a, err);
}

size_t front_sum_squares_workspace(struct device *dev, enum dtype t, int32_t num_spans)
{
    (void)dev;
    (void)t;
    return (size_t)num_spans * sizeof(double);
}

struct clip_args {
    double *norm, *scale;
    const double *squares;
    double max_norm;
};

static void clip_loop(struct pool *pool, const void *args)
{
    (void)pool;
    const struct clip_args *a = args;
    double norm = sqrt(*a->squares);
    double factor = a->max_norm > 0 ? a->max_norm / (norm + 1e-6) : 1;
    *a->norm = norm;
    *a->scale = !isfinite(norm) ? (double)NAN : factor < 1 ? factor : 1;
}

int front_clip(struct device *dev, struct stream *s, double *norm, double *scale,
               const double *squares, double max_norm, struct error *err)
{
    struct clip_args a = {norm, scale, squares, max_norm};
    return front_submit(dev, s, "clip", clip_loop, &a, sizeof a, err);
}

static int submit_runs(struct device *dev, struct stream *s, const char *op, loop_fn loop,
                       enum dtype t, const struct step_args *a, struct error *err)
{
    size_t size = dtype_size(t);
    for (int32_t i = 0; i < a->num_runs; i++) {
        const struct step_run *run = &a->runs[i];
        ASSERT(run->n >= 0);
        struct run_args one = {
            .w = (char *)a->w + (size_t)run->w * size,
            .m = a->m ? (char *)a->m + (size_t)run->m * size : NULL,
            .v = a->v ? (char *)a->v + (size_t)run->m * size : NULL,
            .g = (const char *)a->g + (size_t)run->g * size,
            .low = a->low ? (char *)a->low + (size_t)run->low * dtype_size(DTYPE_BF16) : NULL,
            .grad_scale = a->grad_scale,
            .n = run->n,
            .lr = a->lr,
            .beta1 = a->beta1,
            .beta2 = a->beta2,
            .eps = a->eps,
            .bias1 = a->bias1,
            .bias2 = a->bias2,
            .decay = run->decay,
        };
        if (front_submit(dev, s, op, loop, &one, sizeof one, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int front_adamw(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
                struct error *err)
{
    const struct loops *l = t == DTYPE_BF16 ? NULL : front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "adamw", t, err);
    }
    return submit_runs(dev, s, "adamw", l->adamw, t, a, err);
}

int front_sgd(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
              struct error *err)
{
    const struct loops *l = t == DTYPE_BF16 ? NULL : front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "sgd", t, err);
    }
    return submit_runs(dev, s, "sgd", l->sgd, t, a, err);
}
