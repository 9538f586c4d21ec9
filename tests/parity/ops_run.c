#include "tests/parity/ops_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

static void must(int rc, const struct error *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

/* C [m,ldc] before the product: poison where it must be written, numbers between the rows. */
static double *draw_c(const struct side *x, enum dtype exact, const struct shape *s, int64_t ldc,
                      bool poisoned)
{
    (void)x;
    double *c = draw_numbers(exact, s->m * ldc, 3, s->size, 0);
    for (int64_t i = 0; poisoned && i < s->m; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            c[i * ldc + j] = (double)NAN;
        }
    }
    return c;
}

static void *upload_c(const struct side *x, enum dtype t, enum dtype exact, const struct shape *s,
                      int64_t ldc, bool poisoned)
{
    double *c = draw_c(x, exact, s, ldc, poisoned);
    void *mem = side_upload(x, t, c, s->m * ldc);
    free(c);
    return mem;
}

/* Rows are farther apart than they are long, as for heads within a row. */
static int64_t distance_of(const struct shape *s, int64_t length, int64_t more)
{
    return s->aligned ? (length + 7 + more) / 8 * 8 : length + more;
}

void run_gemm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t lda = distance_of(s, s->trans_a ? s->m : s->k, 3);
    int64_t ldb = distance_of(s, s->trans_b ? s->k : s->n, 1);
    int64_t ldc = distance_of(s, s->n, 2);
    int64_t num_c = s->m * ldc;
    enum dtype c_type = s->wide_c ? dtype_wide(t) : t;
    enum dtype c_exact = s->wide_c ? DTYPE_F32 : x->exact;
    struct gemm_args g = {
        .trans_a = s->trans_a,
        .trans_b = s->trans_b,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .alpha = s->alpha,
        .beta = s->beta,
        .a = side_draw(x, t, (s->trans_a ? s->k : s->m) * lda, 1, s->size),
        .lda = lda,
        .b = side_draw(x, t, (s->trans_b ? s->n : s->k) * ldb, 2, s->size),
        .ldb = ldb,
        .c = upload_c(x, c_type, c_exact, s, ldc, s->beta == 0 || s->c0),
        .ldc = ldc,
        .c_type = c_type,
        .c0 = s->c0 ? upload_c(x, c_type, c_exact, s, ldc, s->beta == 0) : NULL,
        .bias = s->bias ? side_draw(x, t, s->n, 4, 1) : NULL,
        .gelu = s->gelu ? upload_c(x, c_type, c_exact, s, ldc, true) : NULL,
        .gelu_of = s->gelu_of ? upload_c(x, c_type, c_exact, s, ldc, false) : NULL,
    };
    must(x->k->gemm(x->dev, x->s, t, &g, &err), &err);
    side_output(x, c_type, g.c, num_c, out);
    if (s->gelu) {
        side_output(x, c_type, g.gelu, num_c, out);
    }
}

void run_embed(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    /* Below and behind the table's rows, too, where they don't begin at 0. */
    int32_t *ids = side_ints(x, s->r, 1, s->first ? 2 * s->first + s->v : s->v);
    void *w = side_draw(x, t, s->v * s->d, 2, s->size);
    void *dw = side_draw_wide(x, t, s->v * s->d, 4, s->size);
    void *dy = side_draw(x, t, s->r * s->d, 3, s->size);
    void *y = side_poison(x, t, s->r * s->d);
    size_t bytes = x->k->embed_bwd_workspace(x->dev, t, s->r, s->v, s->d);
    void *workspace = side_poison_bytes(x, bytes);
    must(x->k->embed_fwd(x->dev, x->s, t, y, w, ids, s->first, s->r, s->v, s->d, &err), &err);
    side_output(x, t, y, s->r * s->d, out);
    must(x->k->embed_bwd(x->dev, x->s, t, dw, dy, ids, s->first, s->r, s->v, s->d, workspace, &err),
         &err);
    side_output(x, dtype_wide(t), dw, s->v * s->d, out);
}

void run_rmsnorm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    enum dtype wide = dtype_wide(t);
    int64_t n = s->r * s->d;
    void *in = side_draw(x, t, n, 1, s->size);
    void *y = s->alias ? side_draw(x, t, n, 1, s->size) : side_poison(x, t, n);
    void *w = side_draw(x, t, s->d, 2, 1);
    void *dw = side_draw_wide(x, t, s->d, 3, 1);
    void *dy = side_draw(x, t, n, 4, 1);
    void *rstd = side_poison(x, wide, s->r);
    must(x->k->rmsnorm_fwd(x->dev, x->s, t, y, rstd, s->alias ? y : in, w, s->r, s->d, 1e-5, &err),
         &err);
    side_output(x, t, y, n, out);
    rstd = side_pass_wide(x, t, rstd, s->r, out);
    void *dx = s->accumulate ? side_draw(x, t, n, 5, 1) : s->alias ? dy : side_poison(x, t, n);
    void *workspace = side_poison_bytes(x, x->k->rmsnorm_bwd_workspace(x->dev, t, s->r, s->d));
    must(x->k->rmsnorm_bwd(x->dev, x->s, t, dx, dw, dy, in, w, rstd, s->r, s->d, s->accumulate,
                           workspace, &err),
         &err);
    side_output(x, t, dx, n, out);
    side_output(x, wide, dw, s->d, out);
}

void run_layernorm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    enum dtype wide = dtype_wide(t);
    int64_t n = s->r * s->d;
    void *in = side_draw_around(x, t, n, 1, s->size, s->centre);
    void *y = s->alias ? side_draw_around(x, t, n, 1, s->size, s->centre) : side_poison(x, t, n);
    void *w = side_draw(x, t, s->d, 2, 1);
    void *b = side_draw(x, t, s->d, 6, 1);
    void *dw = side_draw_wide(x, t, s->d, 3, 1);
    void *db = side_draw_wide(x, t, s->d, 7, 1);
    void *dy = side_draw(x, t, n, 4, 1);
    void *mean = side_poison(x, wide, s->r);
    void *rstd = side_poison(x, wide, s->r);
    must(x->k->layernorm_fwd(x->dev, x->s, t, y, mean, rstd, s->alias ? y : in, w, b, s->r, s->d,
                             1e-5, &err),
         &err);
    side_output(x, t, y, n, out);
    mean = side_pass_wide(x, t, mean, s->r, out);
    rstd = side_pass_wide(x, t, rstd, s->r, out);
    void *dx = s->accumulate ? side_draw(x, t, n, 5, 1) : s->alias ? dy : side_poison(x, t, n);
    void *workspace = side_poison_bytes(x, x->k->layernorm_bwd_workspace(x->dev, t, s->r, s->d));
    must(x->k->layernorm_bwd(x->dev, x->s, t, dx, dw, db, dy, in, w, mean, rstd, s->r, s->d,
                             s->accumulate, workspace, &err),
         &err);
    side_output(x, t, dx, n, out);
    side_output(x, wide, dw, s->d, out);
    side_output(x, wide, db, s->d, out);
}

void run_rope(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t max_positions = 2 * s->t;
    void *in = side_draw(x, t, s->r * s->h * s->e, 1, s->size);
    void *cos = side_draw_wide(x, t, max_positions * s->e / 2, 2, 1);
    void *sin = side_draw_wide(x, t, max_positions * s->e / 2, 3, 1);
    int32_t *positions = s->positions ? side_ints(x, s->r, 4, max_positions) : NULL;
    must(x->k->rope(x->dev, x->s, t, in, cos, sin, positions, s->r, s->t, s->h, s->e, s->backward,
                    &err),
         &err);
    side_output(x, t, in, s->r * s->h * s->e, out);
}

/* Documents of a row that end where length says. */
static void number_documents(const struct shape *s, const int32_t *length, int64_t b,
                             int32_t *segments)
{
    int32_t now = 0;
    int64_t end = 0;
    for (int64_t t = 0; t < s->t; t++) {
        if (t == end) {
            end += 1 + length[b * s->t + now++];
        }
        segments[b * s->t + t] = !s->recur ? now : b % 2 ? now % 3 : -now;
    }
}

int32_t *draw_segments(const struct side *x, const struct shape *s)
{
    int32_t *segments = calloc((size_t)(s->b * s->t + 1), sizeof *segments);
    int32_t *length = s->document > 0 ? draw_ints(s->b * s->t, 10, 2 * s->document - 1) : NULL;
    for (int64_t b = 0; b < s->b; b++) {
        int32_t now = 0;
        if (length) {
            number_documents(s, length, b, segments);
            continue;
        }
        for (int64_t t = 0; t < s->t; t++) {
            now += (t * (b + 3)) % 11 == 5;
            segments[b * s->t + t] = now;
        }
    }
    int32_t *mem = side_upload_ints(x, segments, s->b * s->t);
    free(length);
    free(segments);
    return mem;
}

void run_attention(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t num_q = s->b * s->t * s->h * s->e;
    int64_t num_k = s->b * s->t * s->kv * s->e;
    int64_t num_lse = s->b * s->h * s->t;
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
        .lse = side_poison(x, dtype_wide(t), num_lse),
        .d_o = side_draw(x, t, num_q, 4, 1),
        .dq = side_poison(x, t, num_q),
        .dk = side_poison(x, t, num_k),
        .dv = side_poison(x, t, num_k),
        .workspace = side_poison_bytes(x, bytes),
    };
    must(x->k->attention_fwd(x->dev, x->s, t, &a, &err), &err);
    a.o = side_pass(x, t, a.o, num_q, out);
    a.lse = side_pass_wide(x, t, a.lse, num_lse, out);
    a.workspace = side_poison_bytes(x, bytes);
    must(x->k->attention_bwd(x->dev, x->s, t, &a, &err), &err);
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

/* alias: y lies in x, dx in dy; no_gradient: dx lies in x. */
void run_gelu(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *in = side_draw(x, t, s->n, 1, s->size);
    void *y = s->alias ? side_draw(x, t, s->n, 1, s->size) : side_poison(x, t, s->n);
    void *dy = side_draw(x, t, s->n, 2, 1);
    must(x->k->gelu_fwd(x->dev, x->s, t, y, s->alias ? y : in, s->n, &err), &err);
    side_output(x, t, y, s->n, out);
    void *dx = s->alias ? dy : s->no_gradient ? in : side_poison(x, t, s->n);
    must(x->k->gelu_bwd(x->dev, x->s, t, dx, dy, in, s->n, &err), &err);
    side_output(x, t, dx, s->n, out);
}

void run_bias(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t n = s->r * s->n;
    void *y = side_draw(x, t, n, 1, s->size);
    void *b = side_draw(x, t, s->n, 2, 1);
    void *db = side_draw_wide(x, t, s->n, 3, 1);
    must(x->k->column_sum(x->dev, x->s, t, db, y, s->r, s->n, &err), &err);
    side_output(x, dtype_wide(t), db, s->n, out);
    must(x->k->add_bias(x->dev, x->s, t, y, b, s->r, s->n, &err), &err);
    side_output(x, t, y, n, out);
}

void run_elementwise(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *a = side_draw(x, t, s->n, 1, s->size);
    void *b = side_draw(x, t, s->n, 2, s->size);
    void *y = s->alias ? a : side_poison(x, t, s->n);
    must(x->k->add(x->dev, x->s, t, y, a, b, s->n, &err), &err);
    y = side_pass(x, t, y, s->n, out);
    must(x->k->scale(x->dev, x->s, t, y, 0.37, s->n, &err), &err);
    side_output(x, t, y, s->n, out);
}

/* To f32 and to bf16 and, on a side in f64, to f64. */
void run_cast(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    void *from = side_draw(x, t, s->n, 1, s->size);
    for (int i = 0; i < 2; i++) {
        enum dtype to = t == DTYPE_F64 ? DTYPE_F64 : i == 0 ? DTYPE_F32 : DTYPE_BF16;
        void *mem = side_poison(x, to, s->n);
        must(x->k->cast(x->dev, x->s, mem, to, from, t, s->n, &err), &err);
        side_output(x, to, mem, s->n, out);
    }
}
