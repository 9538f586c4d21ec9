#include "tests/parity/ops_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <string.h>

static void must(int rc, const struct error *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

void run_gemm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    /* Rows are farther apart than they are long, as for heads within a row. */
    int64_t lda = (s->trans_a ? s->m : s->k) + 3;
    int64_t ldb = (s->trans_b ? s->k : s->n) + 1;
    int64_t ldc = s->n + 2;
    void *a = side_draw(x, t, (s->trans_a ? s->k : s->m) * lda, 1, s->size);
    void *b = side_draw(x, t, (s->trans_b ? s->n : s->k) * ldb, 2, s->size);
    int64_t num_c = s->m * ldc;
    void *c = s->beta == 0 ? side_poison(x, t, num_c) : side_draw(x, t, num_c, 3, s->size);
    struct gemm_args g = {
        .trans_a = s->trans_a,
        .trans_b = s->trans_b,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .alpha = s->alpha,
        .beta = s->beta,
        .a = a,
        .lda = lda,
        .b = b,
        .ldb = ldb,
        .c = c,
        .ldc = ldc,
        .c_type = t,
    };
    must(x->k->gemm(x->dev, x->s, t, &g, &err), &err);
    /* What lies between the rows of C isn't C. */
    for (int64_t i = 0; s->beta == 0 && i < s->m; i++) {
        memset((char *)c + (size_t)(i * ldc + s->n) * dtype_size(t), 0, 2 * dtype_size(t));
    }
    side_output(x, t, c, num_c, out);
}

void run_embed(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    /* Below and behind the table's rows, too, where they don't begin at 0. */
    int32_t *ids = side_ints(x, s->r, 1, s->first ? 2 * s->first + s->v : s->v);
    void *w = side_draw(x, t, s->v * s->d, 2, s->size);
    void *dy = side_draw(x, t, s->r * s->d, 3, s->size);
    void *y = side_poison(x, t, s->r * s->d);
    must(x->k->embed_fwd(x->dev, x->s, t, y, w, ids, s->first, s->r, s->v, s->d, &err), &err);
    side_output(x, t, y, s->r * s->d, out);
    must(x->k->embed_bwd(x->dev, x->s, t, w, dy, ids, s->first, s->r, s->v, s->d, NULL, &err),
         &err);
    side_output(x, t, w, s->v * s->d, out);
}

void run_rmsnorm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t n = s->r * s->d;
    void *in = side_draw(x, t, n, 1, s->size);
    void *copy = side_draw(x, t, n, 1, s->size);
    void *w = side_draw(x, t, s->d, 2, 1);
    void *dw = side_draw(x, t, s->d, 3, 1);
    void *dy = side_draw(x, t, n, 4, 1);
    void *rstd = side_poison(x, t, s->r);
    void *y = s->alias ? copy : side_poison(x, t, n);
    must(x->k->rmsnorm_fwd(x->dev, x->s, t, y, rstd, s->alias ? copy : in, w, s->r, s->d, 1e-5,
                           &err),
         &err);
    side_output(x, t, y, n, out);
    side_output(x, t, rstd, s->r, out);
    void *dx = s->accumulate ? side_draw(x, t, n, 5, 1) : s->alias ? dy : side_poison(x, t, n);
    size_t bytes = x->k->rmsnorm_bwd_workspace(x->dev, t, s->r, s->d);
    void *workspace = x->dev->ops->alloc(x->dev, bytes, MEM_DEVICE);
    memset(workspace, 0xFF, bytes);
    must(x->k->rmsnorm_bwd(x->dev, x->s, t, dx, dw, dy, in, w, rstd, s->r, s->d, s->accumulate,
                           workspace, &err),
         &err);
    side_output(x, t, dx, n, out);
    side_output(x, t, dw, s->d, out);
}

void run_rope(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t max_positions = 2 * s->t;
    void *in = side_draw(x, t, s->r * s->h * s->e, 1, s->size);
    void *cos = side_draw(x, t, max_positions * s->e / 2, 2, 1);
    void *sin = side_draw(x, t, max_positions * s->e / 2, 3, 1);
    int32_t *positions = s->positions ? side_ints(x, s->r, 4, max_positions) : NULL;
    must(x->k->rope(x->dev, x->s, t, in, cos, sin, positions, s->r, s->t, s->h, s->e, s->backward,
                    &err),
         &err);
    side_output(x, t, in, s->r * s->h * s->e, out);
}

int32_t *draw_segments(const struct side *x, const struct shape *s)
{
    int32_t *segments = side_ints(x, s->b * s->t, 9, 1);
    if (s->document > 0) {
        int32_t *length = side_ints(x, s->b * s->t, 10, 2 * s->document - 1);
        for (int64_t b = 0; b < s->b; b++) {
            int32_t now = 0;
            int64_t end = 0;
            for (int64_t t = 0; t < s->t; t++) {
                if (t == end) {
                    end += 1 + length[b * s->t + now++];
                }
                segments[b * s->t + t] = !s->recur ? now : b % 2 ? now % 3 : -now;
            }
        }
        return segments;
    }
    for (int64_t b = 0; b < s->b; b++) {
        int32_t now = 0;
        for (int64_t t = 0; t < s->t; t++) {
            now += (t * (b + 3)) % 11 == 5;
            segments[b * s->t + t] = now;
        }
    }
    return segments;
}

void run_attention(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t num_q = s->b * s->t * s->h * s->e;
    int64_t num_k = s->b * s->t * s->kv * s->e;
    size_t bytes = x->k->attention_workspace(x->dev, t, s->b, s->t, s->h, s->kv, s->e);
    struct attention_args a = {
        .b = s->b,
        .t = s->t,
        .h = s->h,
        .kv = s->kv,
        .e = s->e,
        .scale = s->alpha,
        .q = side_draw(x, t, num_q, 1, s->size),
        .k = side_draw(x, t, num_k, 2, s->size),
        .v = side_draw(x, t, num_k, 3, 1),
        .segments = s->segments ? draw_segments(x, s) : NULL,
        .o = side_poison(x, t, num_q),
        .lse = side_poison(x, t, s->b * s->h * s->t),
        .d_o = side_draw(x, t, num_q, 4, 1),
        .dq = side_poison(x, t, num_q),
        .dk = side_poison(x, t, num_k),
        .dv = side_poison(x, t, num_k),
        .workspace = x->dev->ops->alloc(x->dev, bytes, MEM_DEVICE),
    };
    memset(a.workspace, 0xFF, bytes);
    must(x->k->attention_fwd(x->dev, x->s, t, &a, &err), &err);
    memset(a.workspace, 0xFF, bytes);
    must(x->k->attention_bwd(x->dev, x->s, t, &a, &err), &err);
    side_output(x, t, a.o, num_q, out);
    side_output(x, t, a.lse, s->b * s->h * s->t, out);
    side_output(x, t, a.dq, num_q, out);
    side_output(x, t, a.dk, num_k, out);
    side_output(x, t, a.dv, num_k, out);
}

void run_swiglu(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *gate = side_draw(x, t, s->n, 1, s->size);
    void *up = side_draw(x, t, s->n, 2, 1);
    void *dy = side_draw(x, t, s->n, 3, 1);
    void *y = side_poison(x, t, s->n);
    must(x->k->swiglu_fwd(x->dev, x->s, t, y, gate, up, s->n, &err), &err);
    side_output(x, t, y, s->n, out);
    void *dgate = s->alias ? gate : side_poison(x, t, s->n);
    void *dup = s->alias ? up : side_poison(x, t, s->n);
    must(x->k->swiglu_bwd(x->dev, x->s, t, dgate, dup, dy, gate, up, s->n, &err), &err);
    side_output(x, t, dgate, s->n, out);
    side_output(x, t, dup, s->n, out);
}

void run_elementwise(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *a = side_draw(x, t, s->n, 1, s->size);
    void *b = side_draw(x, t, s->n, 2, s->size);
    void *y = s->alias ? a : side_poison(x, t, s->n);
    must(x->k->add(x->dev, x->s, t, y, a, b, s->n, &err), &err);
    side_output(x, t, y, s->n, out);
    must(x->k->scale(x->dev, x->s, t, y, 0.37, s->n, &err), &err);
    side_output(x, t, y, s->n, out);
}

int32_t *draw_targets(const struct side *x, const struct shape *s)
{
    int32_t *targets = side_ints(x, s->r, 5, s->v);
    for (int64_t r = 3; r < s->r; r += 7) {
        targets[r] = -100;
    }
    return targets;
}

void run_cross_entropy(const struct side *x, enum dtype t, const struct shape *s,
                       struct outputs *out)
{
    struct error err = {0};
    int64_t n = s->r * s->v;
    void *logits = side_draw(x, t, n, 1, s->size);
    int32_t *targets = draw_targets(x, s);
    double *nll = side_poison(x, DTYPE_F64, s->r);
    void *dlogits = s->no_gradient ? NULL : s->alias ? logits : side_poison(x, t, n);
    must(x->k->cross_entropy(x->dev, x->s, t, nll, dlogits, logits, targets, 1.0 / 64, s->r, s->v,
                             &err),
         &err);
    side_output(x, DTYPE_F64, nll, s->r, out);
    if (dlogits) {
        side_output(x, t, dlogits, n, out);
    }
}

void run_sums(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *in = side_draw(x, t, s->n, 1, s->size);
    double *plain = side_draw(x, DTYPE_F64, s->n, 1, s->size);
    double *sum = side_poison(x, DTYPE_F64, 2);
    struct span all = {0, s->n};
    must(x->k->sum_squares(x->dev, x->s, t, &sum[0], in, &all, 1, &sum[0], &err), &err);
    must(x->k->sum_double(x->dev, x->s, &sum[1], plain, s->n, &err), &err);
    side_output(x, DTYPE_F64, &sum[0], 1, out);
    side_output(x, DTYPE_F64, &sum[1], 1, out);
}

/* Three updates, so that the moments matter; v starts positive. */
void run_adamw(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    double *square = side_draw(x, DTYPE_F64, s->n, 3, 1);
    for (int64_t i = 0; i < s->n; i++) {
        square[i] = (double)(float)(square[i] * square[i] * 1e-4);
    }
    struct step_run all = {.n = s->n, .decay = 0.1};
    double scale = 0.7;
    struct step_args a = {
        .runs = &all,
        .num_runs = 1,
        .w = side_draw(x, t, s->n, 1, 1),
        .m = side_draw(x, t, s->n, 2, 1e-2),
        .v = side_upload(x, t, square, s->n),
        .g = side_draw(x, t, s->n, 4, 1e-2),
        .lr = 3e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .grad_scale = &scale,
    };
    for (int step = 1; step <= 3; step++) {
        a.bias1 = 1 - (step == 1 ? 0.9 : step == 2 ? 0.81 : 0.729);
        a.bias2 = 1 - (step == 1 ? 0.95 : step == 2 ? 0.9025 : 0.857375);
        must(x->k->adamw(x->dev, x->s, t, &a, &err), &err);
    }
    side_output(x, t, a.w, s->n, out);
    side_output(x, t, a.m, s->n, out);
    side_output(x, t, a.v, s->n, out);
}

void run_sgd(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *w = side_draw(x, t, s->n, 1, 1);
    void *g = side_draw(x, t, s->n, 2, 1);
    struct step_run all = {.n = s->n, .decay = 0.1};
    double scale = 0.5;
    struct step_args a = {
        .runs = &all, .num_runs = 1, .w = w, .g = g, .grad_scale = &scale, .lr = 1e-2};
    must(x->k->sgd(x->dev, x->s, t, &a, &err), &err);
    side_output(x, t, w, s->n, out);
}
