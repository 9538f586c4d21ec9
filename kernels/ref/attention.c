/* Attention row by row: a query's scores, their softmax, the weighted sum of values. The backward
 * pass keeps the sums of dk and dv of one key head in double. */
#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

/* Where query and key row (b, t) of a head start. */
static int64_t query_at(const struct attention_args *a, int64_t b, int64_t t, int64_t h)
{
    return ((b * a->t + t) * a->h + h) * a->e;
}

static int64_t key_at(const struct attention_args *a, int64_t b, int64_t t, int64_t kv)
{
    return ((b * a->t + t) * a->kv + kv) * a->e;
}

static bool sees(const struct attention_args *a, int64_t b, int64_t i, int64_t j)
{
    return j <= i && (!a->segments || a->segments[b * a->t + i] == a->segments[b * a->t + j]);
}

static double dot(const elem *x, const elem *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)elem_load(x[i]) * (double)elem_load(y[i]);
    }
    return sum;
}

size_t OP(attention_workspace)(int num_threads, int64_t b, int64_t seq_len, int64_t h, int64_t kv,
                               int64_t e)
{
    (void)num_threads;
    (void)b;
    (void)h;
    (void)kv;
    size_t t = (size_t)seq_len;
    size_t width = (size_t)e;
    return (t + width + 2 * t * width) * sizeof(double);
}

/* score [T], sum [E]: scratch. */
static void forward_row(const struct attention_args *a, int64_t b, int64_t h, int64_t i,
                        double *score, double *sum)
{
    const elem *q = (const elem *)a->q + query_at(a, b, i, h);
    int64_t kv = h / (a->h / a->kv);
    double max = -INFINITY;
    for (int64_t j = 0; j <= i; j++) {
        if (sees(a, b, i, j)) {
            score[j] = a->scale * dot(q, (const elem *)a->k + key_at(a, b, j, kv), a->e);
            max = score[j] > max ? score[j] : max;
        }
    }
    double total = 0;
    memset(sum, 0, (size_t)a->e * sizeof *sum);
    for (int64_t j = 0; j <= i; j++) {
        if (sees(a, b, i, j)) {
            const elem *v = (const elem *)a->v + key_at(a, b, j, kv);
            double p = exp(score[j] - max);
            total += p;
            for (int64_t e = 0; e < a->e; e++) {
                sum[e] += p * (double)elem_load(v[e]);
            }
        }
    }
    elem *o = (elem *)a->o + query_at(a, b, i, h);
    for (int64_t e = 0; e < a->e; e++) {
        o[e] = elem_store((real)(sum[e] / total));
    }
    ((real *)a->lse)[(b * a->h + h) * a->t + i] = (real)(max + log(total));
}

void OP(attention_fwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct attention_args *a = args;
    double *score = a->workspace;
    double *sum = score + a->t;
    for (int64_t b = 0; b < a->b; b++) {
        for (int64_t h = 0; h < a->h; h++) {
            for (int64_t i = 0; i < a->t; i++) {
                forward_row(a, b, h, i, score, sum);
            }
        }
    }
}

/* sum_q [E]: scratch; sum_k, sum_v [T,E]: added to. */
static void backward_row(const struct attention_args *a, int64_t b, int64_t h, int64_t i,
                         double *sum_q, double *sum_k, double *sum_v)
{
    int64_t kv = h / (a->h / a->kv);
    int64_t at = query_at(a, b, i, h);
    const elem *q = (const elem *)a->q + at;
    const elem *d_o = (const elem *)a->d_o + at;
    double lse = (double)((const real *)a->lse)[(b * a->h + h) * a->t + i];
    double delta = dot(d_o, (const elem *)a->o + at, a->e);
    memset(sum_q, 0, (size_t)a->e * sizeof *sum_q);
    for (int64_t j = 0; j <= i; j++) {
        if (!sees(a, b, i, j)) {
            continue;
        }
        const elem *k = (const elem *)a->k + key_at(a, b, j, kv);
        const elem *v = (const elem *)a->v + key_at(a, b, j, kv);
        double p = exp(a->scale * dot(q, k, a->e) - lse);
        double ds = a->scale * p * (dot(d_o, v, a->e) - delta);
        for (int64_t e = 0; e < a->e; e++) {
            sum_q[e] += ds * (double)elem_load(k[e]);
            sum_k[j * a->e + e] += ds * (double)elem_load(q[e]);
            sum_v[j * a->e + e] += p * (double)elem_load(d_o[e]);
        }
    }
    elem *dq = (elem *)a->dq + at;
    for (int64_t e = 0; e < a->e; e++) {
        dq[e] = elem_store((real)(sum_q[e]));
    }
}

static void backward_key_head(const struct attention_args *a, int64_t b, int64_t kv, double *sum_q,
                              double *sum_k, double *sum_v)
{
    memset(sum_k, 0, (size_t)(a->t * a->e) * sizeof *sum_k);
    memset(sum_v, 0, (size_t)(a->t * a->e) * sizeof *sum_v);
    int64_t group = a->h / a->kv;
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t i = 0; i < a->t; i++) {
            backward_row(a, b, h, i, sum_q, sum_k, sum_v);
        }
    }
    for (int64_t j = 0; j < a->t; j++) {
        elem *dk = (elem *)a->dk + key_at(a, b, j, kv);
        elem *dv = (elem *)a->dv + key_at(a, b, j, kv);
        for (int64_t e = 0; e < a->e; e++) {
            dk[e] = elem_store((real)(sum_k[j * a->e + e]));
            dv[e] = elem_store((real)(sum_v[j * a->e + e]));
        }
    }
}

void OP(attention_bwd)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct attention_args *a = args;
    double *sum_q = a->workspace;
    double *sum_k = sum_q + a->e;
    double *sum_v = sum_k + a->t * a->e;
    for (int64_t b = 0; b < a->b; b++) {
        for (int64_t kv = 0; kv < a->kv; kv++) {
            backward_key_head(a, b, kv, sum_q, sum_k, sum_v);
        }
    }
}
