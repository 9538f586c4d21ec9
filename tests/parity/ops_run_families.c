/* Runs of the operations that came with more families and with a vocabulary cut over ranks. */
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

void run_layernorm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    int64_t n = s->r * s->d;
    void *in = side_draw_around(x, t, n, 1, s->size, s->centre);
    void *y = s->alias ? side_draw_around(x, t, n, 1, s->size, s->centre) : side_poison(x, t, n);
    void *w = side_draw(x, t, s->d, 2, 1);
    void *b = side_draw(x, t, s->d, 6, 1);
    void *dw = side_draw(x, t, s->d, 3, 1);
    void *db = side_draw(x, t, s->d, 7, 1);
    void *dy = side_draw(x, t, n, 4, 1);
    void *mean = side_poison(x, t, s->r);
    void *rstd = side_poison(x, t, s->r);
    must(x->k->layernorm_fwd(x->dev, x->s, t, y, mean, rstd, s->alias ? y : in, w, b, s->r, s->d,
                             1e-5, &err),
         &err);
    side_output(x, t, y, n, out);
    side_output(x, t, mean, s->r, out);
    side_output(x, t, rstd, s->r, out);
    void *dx = s->accumulate ? side_draw(x, t, n, 5, 1) : s->alias ? dy : side_poison(x, t, n);
    size_t bytes = x->k->layernorm_bwd_workspace(x->dev, t, s->r, s->d);
    void *workspace = x->dev->ops->alloc(x->dev, bytes, MEM_DEVICE);
    memset(workspace, 0xFF, bytes);
    must(x->k->layernorm_bwd(x->dev, x->s, t, dx, dw, db, dy, in, w, mean, rstd, s->r, s->d,
                             s->accumulate, workspace, &err),
         &err);
    side_output(x, t, dx, n, out);
    side_output(x, t, dw, s->d, out);
    side_output(x, t, db, s->d, out);
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
    must(x->k->column_sum(x->dev, x->s, t, b, y, s->r, s->n, &err), &err);
    side_output(x, t, b, s->n, out);
    must(x->k->add_bias(x->dev, x->s, t, y, b, s->r, s->n, &err), &err);
    side_output(x, t, y, n, out);
}

#define MAX_PARTS 9

struct parts {
    int num;
    struct logits_part part[MAX_PARTS];
    double *max[MAX_PARTS], *sums[MAX_PARTS];
};

/* Cuts logits [R,V] into parts of ld columns; what isn't valid is NaN. Where the parts have more
 * room than V, the last have no valid column. */
static struct parts cut(const struct side *x, enum dtype t, const struct shape *s,
                        const char *logits, const int32_t *targets)
{
    struct parts parts = {.num = s->num_parts};
    size_t size = dtype_size(t);
    for (int i = 0; i < parts.num; i++) {
        int64_t first = i * s->ld < s->v ? i * s->ld : s->v;
        int64_t valid = s->v - first < s->ld ? s->v - first : s->ld;
        char *own = side_poison(x, t, s->r * s->ld);
        for (int64_t r = 0; valid > 0 && r < s->r; r++) {
            memcpy(own + (size_t)(r * s->ld) * size, logits + (size_t)(r * s->v + first) * size,
                   (size_t)valid * size);
        }
        parts.part[i] = (struct logits_part){own, s->r, s->ld, valid, first, targets};
        parts.max[i] = side_poison(x, DTYPE_F64, s->r);
        parts.sums[i] = side_poison(x, DTYPE_F64, 2 * s->r);
    }
    return parts;
}

/* What the ranks do between the parts: all get the largest and the sums. */
static void meet(const struct side *x, enum dtype t, const struct parts *p, int64_t r)
{
    struct error err = {0};
    for (int i = 0; i < p->num; i++) {
        must(x->k->ce_max(x->dev, x->s, t, p->max[i], &p->part[i], &err), &err);
        for (int64_t j = 0; j < r; j++) {
            p->max[0][j] = p->max[i][j] > p->max[0][j] ? p->max[i][j] : p->max[0][j];
        }
    }
    for (int i = 0; i < p->num; i++) {
        must(x->k->ce_sum(x->dev, x->s, t, p->sums[i], p->max[0], &p->part[i], &err), &err);
        for (int64_t j = 0; i > 0 && j < 2 * r; j++) {
            p->sums[0][j] += p->sums[i][j];
        }
    }
}

void run_vocabulary_parts(const struct side *x, enum dtype t, const struct shape *s,
                          struct outputs *out)
{
    struct error err = {0};
    assert_true(s->num_parts <= MAX_PARTS && s->num_parts * s->ld >= s->v);
    void *logits =
        s->equal ? side_zeros(x, t, s->r * s->v) : side_draw(x, t, s->r * s->v, 1, s->size);
    int32_t *targets = draw_targets(x, s);
    double *nll = side_poison(x, DTYPE_F64, s->r);
    struct parts parts = cut(x, t, s, logits, targets);
    meet(x, t, &parts, s->r);
    side_output(x, DTYPE_F64, parts.max[0], s->r, out);
    side_output(x, DTYPE_F64, parts.sums[0], 2 * s->r, out);
    char *whole = side_poison(x, t, s->r * s->v);
    size_t size = dtype_size(t);
    for (int i = 0; i < parts.num; i++) {
        struct logits_part *p = &parts.part[i];
        char *own = s->alias ? (char *)(uintptr_t)p->logits : side_poison(x, t, s->r * s->ld);
        void *dlogits = s->no_gradient ? NULL : own;
        must(x->k->ce_finish(x->dev, x->s, t, nll, dlogits, parts.max[0], parts.sums[0], 1.0 / 64,
                             p, &err),
             &err);
        for (int64_t r = 0; dlogits && r < s->r; r++) {
            char *row = own + (size_t)(r * s->ld) * size;
            memcpy(whole + (size_t)(r * s->v + p->first) * size, row, (size_t)p->valid * size);
            for (size_t j = (size_t)p->valid * size; j < (size_t)s->ld * size; j++) {
                assert_int_equal(row[j], 0);
            }
        }
    }
    side_output(x, DTYPE_F64, nll, s->r, out);
    if (!s->no_gradient) {
        side_output(x, t, whole, s->r * s->v, out);
    }
}
