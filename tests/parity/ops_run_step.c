/* Runs of what ends a step: the loss, sums, clipping, the optimizers. */
#include "tests/parity/ops_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void must(int rc, const struct error *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

int32_t *draw_targets(const struct side *x, const struct shape *s)
{
    int32_t *targets = draw_ints(s->r, 5, s->v);
    for (int64_t r = 3; r < s->r; r += 7) {
        targets[r] = -100;
    }
    int32_t *mem = side_upload_ints(x, targets, s->r);
    free(targets);
    return mem;
}

void run_cross_entropy(const struct side *x, enum dtype t, const struct shape *s,
                       struct outputs *out)
{
    struct error err = {0};
    int64_t ld = s->ld > 0 ? s->ld : s->v, n = s->r * ld;
    void *logits = side_draw(x, t, n, 1, s->size);
    int32_t *targets = draw_targets(x, s);
    double *nll = side_poison(x, DTYPE_F64, s->r);
    void *dlogits = s->no_gradient ? NULL : s->alias ? logits : side_poison(x, t, n);
    must(x->k->cross_entropy(x->dev, x->s, t, nll, dlogits, logits, targets, 1.0 / 64, s->r, s->v,
                             ld, &err),
         &err);
    side_output(x, DTYPE_F64, nll, s->r, out);
    if (dlogits) {
        side_output(x, t, dlogits, n, out);
    }
}

#define MAX_PARTS 9

struct parts {
    int num;
    struct logits_part part[MAX_PARTS];
    double *max, *sums; /* of the whole vocabulary */
};

/* Cuts logits [R,V] into parts of ld columns; what isn't valid is NaN. Where the parts have more
 * room than V, the last have no valid column. */
static struct parts cut(const struct side *x, enum dtype t, const struct shape *s,
                        const double *logits, const int32_t *targets)
{
    struct parts parts = {.num = s->num_parts};
    double *own = malloc((size_t)(s->r * s->ld + 1) * sizeof *own);
    for (int i = 0; i < parts.num; i++) {
        int64_t first = i * s->ld < s->v ? i * s->ld : s->v;
        int64_t valid = s->v - first < s->ld ? s->v - first : s->ld;
        for (int64_t at = 0; at < s->r * s->ld; at++) {
            int64_t r = at / s->ld;
            int64_t j = at % s->ld;
            own[at] = j < valid ? logits[r * s->v + first + j] : (double)NAN;
        }
        void *mem = side_upload(x, t, own, s->r * s->ld);
        parts.part[i] = (struct logits_part){mem, s->r, s->ld, valid, first, targets};
    }
    free(own);
    return parts;
}

/* What the ranks do between the parts: all get the largest and the sums. */
static void meet(const struct side *x, enum dtype t, struct parts *p, int64_t r,
                 struct outputs *out)
{
    struct error err = {0};
    double *max = malloc((size_t)(r + 1) * sizeof *max);
    double *sums = calloc((size_t)(2 * r + 1), sizeof *sums);
    for (int i = 0; i < p->num; i++) {
        void *mem = side_poison(x, DTYPE_F64, r);
        must(x->k->ce_max(x->dev, x->s, t, mem, &p->part[i], &err), &err);
        double *own = side_download(x, DTYPE_F64, mem, r);
        for (int64_t j = 0; j < r; j++) {
            max[j] = i == 0 || own[j] > max[j] ? own[j] : max[j];
        }
        free(own);
    }
    p->max = side_upload(x, DTYPE_F64, max, r);
    for (int i = 0; i < p->num; i++) {
        void *mem = side_poison(x, DTYPE_F64, 2 * r);
        must(x->k->ce_sum(x->dev, x->s, t, mem, p->max, &p->part[i], &err), &err);
        double *own = side_download(x, DTYPE_F64, mem, 2 * r);
        for (int64_t j = 0; j < 2 * r; j++) {
            sums[j] += own[j];
        }
        free(own);
    }
    p->sums = side_upload(x, DTYPE_F64, sums, 2 * r);
    side_output(x, DTYPE_F64, p->max, r, out);
    side_output(x, DTYPE_F64, p->sums, 2 * r, out);
    free(max);
    free(sums);
}

/* A part's gradients into their columns of whole [R,V]; in the others are zeros. */
static void gather(const struct side *x, enum dtype t, const struct shape *s,
                   const struct logits_part *p, const void *dlogits, double *whole)
{
    double *own = side_download(x, t, dlogits, s->r * s->ld);
    for (int64_t at = 0; at < s->r * s->ld; at++) {
        int64_t r = at / s->ld;
        int64_t j = at % s->ld;
        if (j < p->valid) {
            whole[r * s->v + p->first + j] = own[at];
        } else {
            assert_true(own[at] == 0);
        }
    }
    free(own);
}

void run_vocabulary_parts(const struct side *x, enum dtype t, const struct shape *s,
                          struct outputs *out)
{
    struct error err = {0};
    int64_t n = s->r * s->v;
    assert_true(s->num_parts <= MAX_PARTS && s->num_parts * s->ld >= s->v);
    double *logits = s->equal ? calloc((size_t)(n + 1), sizeof(double))
                              : draw_numbers(x->exact, n, 1, s->size, 0);
    double *whole = calloc((size_t)(n + 1), sizeof(double));
    int32_t *targets = draw_targets(x, s);
    double *nll = side_poison(x, DTYPE_F64, s->r);
    struct parts parts = cut(x, t, s, logits, targets);
    meet(x, t, &parts, s->r, out);
    for (int i = 0; i < parts.num; i++) {
        struct logits_part *p = &parts.part[i];
        void *own = s->alias ? (void *)(uintptr_t)p->logits : side_poison(x, t, s->r * s->ld);
        void *dlogits = s->no_gradient ? NULL : own;
        must(x->k->ce_finish(x->dev, x->s, t, nll, dlogits, parts.max, parts.sums, 1.0 / 64, p,
                             &err),
             &err);
        if (dlogits) {
            gather(x, t, s, p, dlogits, whole);
        }
    }
    side_output(x, DTYPE_F64, nll, s->r, out);
    if (!s->no_gradient) {
        void *mem = side_upload(x, t, whole, n);
        side_output(x, t, mem, n, out);
    }
    free(logits);
    free(whole);
}

/* ---- sums ------------------------------------------------------------------------------------ */

#define MAX_SPANS 40

/* Cuts n numbers into num spans of uneven length, with a gap behind each: *end is where all end. */
static void cut_spans(int64_t n, int num, struct span *spans, int64_t *end)
{
    int64_t at = 0;
    int64_t left = n;
    assert_true(num <= MAX_SPANS);
    for (int i = 0; i < num; i++) {
        int64_t part = i == num - 1 ? left : i % 5 == 3 ? 0 : left / (num - i) + (i % 3);
        spans[i] = (struct span){at, part < left ? part : left};
        left -= spans[i].n;
        at += spans[i].n + 1 + i % 4;
    }
    *end = at;
}

/* What lies between the spans is NaN. */
void run_sums(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    struct span spans[MAX_SPANS];
    int num = s->num_parts > 0 ? s->num_parts : 1;
    int64_t end;
    cut_spans(s->n, num, spans, &end);
    double *numbers = draw_numbers(x->exact, end, 1, s->size, 0);
    for (int i = 0; i < num; i++) {
        int64_t next = i + 1 < num ? spans[i + 1].at : end;
        for (int64_t j = spans[i].at + spans[i].n; j < next; j++) {
            numbers[j] = (double)NAN;
        }
    }
    void *in = side_upload(x, t, numbers, end);
    double *plain = side_draw(x, DTYPE_F64, s->n, 1, s->size);
    double *sum = side_poison(x, DTYPE_F64, 2);
    void *workspace = side_poison_bytes(x, x->k->sum_squares_workspace(x->dev, t, num));
    must(x->k->sum_squares(x->dev, x->s, t, &sum[0], in, spans, num, workspace, &err), &err);
    must(x->k->sum_double(x->dev, x->s, &sum[1], plain, s->n, &err), &err);
    side_output(x, DTYPE_F64, &sum[0], 1, out);
    side_output(x, DTYPE_F64, &sum[1], 1, out);
    free(numbers);
}

/* size: the squares; alpha: max_norm; alias: the norm lies where the squares did. */
void run_clip(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    (void)t;
    double *squares = side_upload(x, DTYPE_F64, &s->size, 1);
    double *norm = s->alias ? squares : side_poison(x, DTYPE_F64, 1);
    double *scale = side_poison(x, DTYPE_F64, 1);
    must(x->k->clip(x->dev, x->s, norm, scale, squares, s->alpha, &err), &err);
    side_output(x, DTYPE_F64, norm, 1, out);
    side_output(x, DTYPE_F64, scale, 1, out);
}

/* ---- optimizers ------------------------------------------------------------------------------ */

/* Runs over n numbers each of w, g, m and low, which have different gaps. */
struct lists {
    struct step_run runs[MAX_SPANS];
    int32_t num;
    int64_t n; /* of each buffer */
};

static struct lists lists_of(const struct shape *s)
{
    struct lists l = {.num = s->num_parts > 0 ? s->num_parts : 1};
    struct span spans[MAX_SPANS];
    int64_t end;
    cut_spans(s->n, l.num, spans, &end);
    for (int i = 0; i < l.num; i++) {
        int64_t at = spans[i].at;
        l.runs[i] = (struct step_run){.w = at + i,
                                      .g = at + 2 * i,
                                      .m = at + (i & 1),
                                      .low = at + 3 * i,
                                      .n = spans[i].n,
                                      .decay = i % 2 ? 0 : 0.1};
    }
    l.n = end + 3 * l.num;
    return l;
}

/* The low copies, in f32 and f64 runs the weights themselves: where they are written. */
static void output_low(const struct side *x, enum dtype t, const struct lists *l, const void *low,
                       const void *w, struct outputs *out)
{
    double *from =
        side_download(x, t == DTYPE_BF16 ? t : dtype_wide(t), t == DTYPE_BF16 ? low : w, l->n);
    double *to = calloc((size_t)(l->n + 1), sizeof *to);
    int64_t num = 0;
    for (int i = 0; i < l->num; i++) {
        const struct step_run *run = &l->runs[i];
        for (int64_t j = 0; j < run->n; j++) {
            to[num++] = from[(t == DTYPE_BF16 ? run->low : run->w) + j];
        }
    }
    void *mem = side_upload(x, t, to, num);
    side_output(x, t, mem, num, out);
    free(from);
    free(to);
}

static const double *draw_scale(const struct side *x, const struct shape *s)
{
    double scale = s->centre == 0 ? 0.7 : s->centre;
    return s->no_scale ? NULL : side_upload(x, DTYPE_F64, &scale, 1);
}

/* Three updates, so that the moments matter; v starts positive. Weights and moments are wide; with
 * bf16, low copies of the weights are written beside them. */
void run_adamw(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    enum dtype wide = dtype_wide(t);
    struct lists l = lists_of(s);
    double *square = draw_numbers(DTYPE_F32, l.n, 3, 1, 0);
    for (int64_t i = 0; i < l.n; i++) {
        square[i] = (double)(float)(square[i] * square[i] * 1e-4);
    }
    struct step_args a = {
        .runs = l.runs,
        .num_runs = l.num,
        .w = side_draw_wide(x, t, l.n, 1, 1),
        .m = side_draw_wide(x, t, l.n, 2, 1e-2),
        .v = side_upload(x, wide, square, l.n),
        .g = side_draw_wide(x, t, l.n, 4, 1e-2),
        .low = t == DTYPE_BF16 ? side_poison(x, t, l.n) : NULL,
        .grad_scale = draw_scale(x, s),
        .lr = 3e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
    };
    for (int step = 1; step <= 3; step++) {
        a.bias1 = 1 - (step == 1 ? 0.9 : step == 2 ? 0.81 : 0.729);
        a.bias2 = 1 - (step == 1 ? 0.95 : step == 2 ? 0.9025 : 0.857375);
        must(x->k->adamw(x->dev, x->s, wide, &a, &err), &err);
    }
    side_output(x, wide, a.w, l.n, out);
    side_output(x, wide, a.m, l.n, out);
    side_output(x, wide, a.v, l.n, out);
    if (!isnan(s->centre)) {
        output_low(x, t, &l, a.low, a.w, out);
    }
    free(square);
}

void run_sgd(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out)
{
    struct error err = {0};
    enum dtype wide = dtype_wide(t);
    struct lists l = lists_of(s);
    struct step_args a = {
        .runs = l.runs,
        .num_runs = l.num,
        .w = side_draw_wide(x, t, l.n, 1, 1),
        .g = side_draw_wide(x, t, l.n, 2, 1),
        .low = t == DTYPE_BF16 ? side_poison(x, t, l.n) : NULL,
        .grad_scale = draw_scale(x, s),
        .lr = 1e-2,
    };
    must(x->k->sgd(x->dev, x->s, wide, &a, &err), &err);
    side_output(x, wide, a.w, l.n, out);
    if (!isnan(s->centre)) {
        output_low(x, t, &l, a.low, a.w, out);
    }
}
