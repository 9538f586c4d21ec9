#include "kernels/cuda/times.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/front.h"
#include "kernels/cuda/gemm.h"

/* More kinds of calls than a model has; who comes to more has them in one row. */
#define MAX_ROWS 512
#define WHAT_MAX 96

struct row {
    const char *op;
    char what[WHAT_MAX];
    int64_t count;
    double first_ms, ms, flops;
};

struct mark {
    cudaEvent_t begin, end;
    struct device *dev;
    int row;
    bool is_first;
};

/* Of the process: its devices' threads all come here. */
static struct {
    pthread_mutex_t lock;
    int num_rows, num_pending;
    struct row rows[MAX_ROWS + 1];
    struct mark pending[TIMES_PENDING];
    int64_t num_captured, num_failed;
} times = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- rows ---- */

static int row_of(const char *op, const char *what)
{
    for (int i = 0; i < times.num_rows; i++) {
        if (strcmp(times.rows[i].op, op) == 0 && strcmp(times.rows[i].what, what) == 0) {
            return i;
        }
    }
    if (times.num_rows == MAX_ROWS) {
        times.rows[MAX_ROWS].op = "other";
        return MAX_ROWS;
    }
    struct row *r = &times.rows[times.num_rows];
    r->op = op;
    snprintf(r->what, sizeof r->what, "%s", what);
    return times.num_rows++;
}

/* Waits for what dev has pending (NULL: all devices), and adds it up. */
static void collect(const struct device *dev)
{
    int num_left = 0;
    for (int i = 0; i < times.num_pending; i++) {
        struct mark m = times.pending[i];
        float ms = 0;
        if (dev && m.dev != dev) {
            times.pending[num_left++] = m;
            continue;
        }
        cuda_use(m.dev, NULL);
        if (cudaEventSynchronize(m.end) == cudaSuccess &&
            cudaEventElapsedTime(&ms, m.begin, m.end) == cudaSuccess) {
            *(m.is_first ? &times.rows[m.row].first_ms : &times.rows[m.row].ms) += (double)ms;
        } else {
            times.num_failed++;
        }
        cudaEventDestroy(m.begin);
        cudaEventDestroy(m.end);
    }
    times.num_pending = num_left;
}

/* ---- a call ---- */

struct call {
    struct mark mark;
    struct stream *s;
    bool is_timed;
};

static bool is_captured(struct stream *s)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(s->cuda, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

static void events_drop(struct mark *m)
{
    if (m->begin) {
        cudaEventDestroy(m->begin);
    }
    if (m->end) {
        cudaEventDestroy(m->end);
    }
    cudaGetLastError();
}

static struct call begin(struct device *dev, struct stream *s)
{
    struct call c = {.mark = {.dev = dev}, .s = s};
    if (cuda_use(dev, NULL) != 0) {
        return c;
    }
    if (is_captured(s)) {
        pthread_mutex_lock(&times.lock);
        times.num_captured++;
        pthread_mutex_unlock(&times.lock);
        return c;
    }
    if (cudaEventCreateWithFlags(&c.mark.begin, cudaEventDefault) == cudaSuccess &&
        cudaEventCreateWithFlags(&c.mark.end, cudaEventDefault) == cudaSuccess &&
        cudaEventRecord(c.mark.begin, s->cuda) == cudaSuccess) {
        c.is_timed = true;
    } else {
        events_drop(&c.mark);
    }
    return c;
}

/* Returns rc, the call's. */
static int end(struct call *c, int rc, const char *op, double flops, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static int end(struct call *c, int rc, const char *op, double flops, const char *fmt, ...)
{
    char what[WHAT_MAX];
    va_list args;
    if (!c->is_timed) {
        return rc;
    }
    if (rc != 0 || cudaEventRecord(c->mark.end, c->s->cuda) != cudaSuccess) {
        events_drop(&c->mark);
        return rc;
    }
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    pthread_mutex_lock(&times.lock);
    if (times.num_pending == TIMES_PENDING) {
        collect(NULL);
    }
    c->mark.row = row_of(op, what);
    c->mark.is_first = times.rows[c->mark.row].count++ == 0;
    times.rows[c->mark.row].flops += flops;
    times.pending[times.num_pending++] = c->mark;
    pthread_mutex_unlock(&times.lock);
    return rc;
}

static const char *type_name(enum dtype t)
{
    return t == DTYPE_BF16 ? "bf16" : t == DTYPE_F32 ? "f32" : "f64";
}

/* ---- the table ---- */

static int gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
                struct error *err)
{
    struct gemm_counts *counts = gemm_cache_counts(cuda_of(dev)->gemm), before = *counts;
    struct call c = begin(dev, s);
    int rc = cuda_kernels.gemm(dev, s, t, a, err);
    return end(&c, rc, "gemm", 2.0 * (double)a->m * (double)a->n * (double)a->k,
               "%s %lldx%lldx%lld %c%c%s%s%s%s%s %s", type_name(t), (long long)a->m,
               (long long)a->n, (long long)a->k, a->trans_a ? 't' : 'n', a->trans_b ? 't' : 'n',
               a->c_type != t ? " wide" : "", a->beta != 0 ? " add" : "", a->bias ? " bias" : "",
               a->gelu ? " gelu" : "", a->gelu_of ? " dgelu" : "",
               counts->fused > before.fused   ? "fused"
               : counts->split > before.split ? "split"
                                              : "plain");
}

/* What must be done below the diagonal: 2 products forward, 5 backward. */
static int attention(const char *op,
                     int (*run)(struct device *, struct stream *, enum dtype,
                                const struct attention_args *, struct error *),
                     double products, struct device *dev, struct stream *s, enum dtype t,
                     const struct attention_args *a, struct error *err)
{
    struct call c = begin(dev, s);
    int rc = run(dev, s, t, a, err);
    return end(&c, rc, op,
               products * (double)a->b * (double)a->h * (double)a->t * (double)a->t * (double)a->e,
               "%s b%lld t%lld h%lld/%lld e%lld%s", type_name(t), (long long)a->b, (long long)a->t,
               (long long)a->h, (long long)a->kv, (long long)a->e, a->segments ? " packed" : "");
}

static int attention_fwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    return attention("attention_fwd", cuda_kernels.attention_fwd, 2, dev, s, t, a, err);
}

static int attention_bwd(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err)
{
    return attention("attention_bwd", cuda_kernels.attention_bwd, 5, dev, s, t, a, err);
}

static int cast(struct device *dev, struct stream *s, void *dst, enum dtype dst_t, const void *src,
                enum dtype src_t, int64_t n, struct error *err)
{
    struct call c = begin(dev, s);
    int rc = cuda_kernels.cast(dev, s, dst, dst_t, src, src_t, n, err);
    return end(&c, rc, "cast", 0, "%s to %s", type_name(src_t), type_name(dst_t));
}

static int sum_double(struct device *dev, struct stream *s, double *out, const double *x, int64_t n,
                      struct error *err)
{
    struct call c = begin(dev, s);
    return end(&c, cuda_kernels.sum_double(dev, s, out, x, n, err), "sum_double", 0, "f64");
}

static int clip(struct device *dev, struct stream *s, double *norm, double *scale,
                const double *squares, double max_norm, struct error *err)
{
    struct call c = begin(dev, s);
    return end(&c, cuda_kernels.clip(dev, s, norm, scale, squares, max_norm, err), "clip", 0,
               "f64");
}

/* TIMED(name, its parameters behind t, as they are passed on) */
#define TIMED(op, parameters, arguments)                                                           \
    static int op(struct device *dev, struct stream *s, enum dtype t, UNPACK parameters,           \
                  struct error *err)                                                               \
    {                                                                                              \
        struct call c = begin(dev, s);                                                             \
        return end(&c, cuda_kernels.op(dev, s, t, UNPACK arguments, err), #op, 0, "%s",            \
                   type_name(t));                                                                  \
    }
#define UNPACK(...) __VA_ARGS__

TIMED(embed_fwd,
      (void *y, const void *w, const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d),
      (y, w, ids, first, r, v, d))
TIMED(embed_bwd,
      (void *dw, const void *dy, const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
       void *workspace),
      (dw, dy, ids, first, r, v, d, workspace))
TIMED(rmsnorm_fwd,
      (void *y, void *rstd, const void *x, const void *w, int64_t r, int64_t d, double eps),
      (y, rstd, x, w, r, d, eps))
TIMED(rmsnorm_bwd,
      (void *dx, void *dw, const void *dy, const void *x, const void *w, const void *rstd,
       int64_t r, int64_t d, bool accumulate, void *workspace),
      (dx, dw, dy, x, w, rstd, r, d, accumulate, workspace))
TIMED(layernorm_fwd,
      (void *y, void *mean, void *rstd, const void *x, const void *w, const void *b, int64_t r,
       int64_t d, double eps),
      (y, mean, rstd, x, w, b, r, d, eps))
TIMED(layernorm_bwd,
      (void *dx, void *dw, void *db, const void *dy, const void *x, const void *w, const void *mean,
       const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace),
      (dx, dw, db, dy, x, w, mean, rstd, r, d, accumulate, workspace))
TIMED(rope,
      (void *x, const void *cos, const void *sin, const int32_t *positions, int64_t r,
       int64_t seq_len, int64_t heads, int64_t e, bool backward),
      (x, cos, sin, positions, r, seq_len, heads, e, backward))
TIMED(swiglu_fwd, (void *y, const void *gate, const void *up, int64_t n), (y, gate, up, n))
TIMED(swiglu_bwd,
      (void *dgate, void *dup, const void *dy, const void *gate, const void *up, int64_t n),
      (dgate, dup, dy, gate, up, n))
TIMED(gelu_fwd, (void *y, const void *x, int64_t n), (y, x, n))
TIMED(gelu_bwd, (void *dx, const void *dy, const void *x, int64_t n), (dx, dy, x, n))
TIMED(add_bias, (void *y, const void *b, int64_t r, int64_t n), (y, b, r, n))
TIMED(column_sum, (void *db, const void *dy, int64_t r, int64_t n), (db, dy, r, n))
TIMED(add, (void *y, const void *a, const void *b, int64_t n), (y, a, b, n))
TIMED(scale, (void *x, double factor, int64_t n), (x, factor, n))
TIMED(cross_entropy,
      (double *nll, void *dlogits, const void *logits, const int32_t *targets, double dloss,
       int64_t r, int64_t v, int64_t ld),
      (nll, dlogits, logits, targets, dloss, r, v, ld))
TIMED(ce_max, (double *max, const struct logits_part *p), (max, p))
TIMED(ce_sum, (double *sums, const double *max, const struct logits_part *p), (sums, max, p))
TIMED(ce_finish,
      (double *nll, void *dlogits, const double *max, const double *sums, double dloss,
       const struct logits_part *p),
      (nll, dlogits, max, sums, dloss, p))
TIMED(sum_squares,
      (double *out, const void *x, const struct span *spans, int32_t num_spans, void *workspace),
      (out, x, spans, num_spans, workspace))
TIMED(adamw, (const struct step_args *a), (a))
TIMED(sgd, (const struct step_args *a), (a))

const struct kernels *times_kernels(void)
{
    static struct kernels timed;
    const char *file = getenv("TANDEM_CUDA_TIMES");
    if (!file || !*file) {
        return &cuda_kernels;
    }
    timed = cuda_kernels; /* what computes nothing stays */
#define TAKE(op) timed.op = op
    TAKE(gemm), TAKE(embed_fwd), TAKE(embed_bwd), TAKE(rmsnorm_fwd), TAKE(rmsnorm_bwd);
    TAKE(layernorm_fwd), TAKE(layernorm_bwd), TAKE(rope), TAKE(attention_fwd), TAKE(attention_bwd);
    TAKE(swiglu_fwd), TAKE(swiglu_bwd), TAKE(gelu_fwd), TAKE(gelu_bwd), TAKE(add_bias);
    TAKE(column_sum), TAKE(add), TAKE(scale), TAKE(cross_entropy), TAKE(ce_max), TAKE(ce_sum);
    TAKE(ce_finish), TAKE(sum_squares), TAKE(sum_double), TAKE(clip), TAKE(adamw), TAKE(sgd);
    TAKE(cast);
    return &timed;
}

/* ---- the file ---- */

void times_write(struct device *dev)
{
    char path[4096];
    const char *file = getenv("TANDEM_CUDA_TIMES");
    if (!file || !*file) {
        return;
    }
    pthread_mutex_lock(&times.lock);
    collect(dev);
    snprintf(path, sizeof path, "%s.%d", file, (int)getpid());
    FILE *f = times.num_rows > 0 ? fopen(path, "w") : NULL;
    if (!f && times.num_rows > 0) {
        log_warn("times of operations: %s can't be written", path);
    }
    for (int i = 0; f && i <= MAX_ROWS; i++) {
        const struct row *r = &times.rows[i];
        if (r->count > 0) {
            fprintf(f,
                    "{\"op\": \"%s\", \"what\": \"%s\", \"count\": %lld, \"first_ms\": %.6g, "
                    "\"ms\": %.6g, \"flops\": %.6g}\n",
                    r->op, r->what, (long long)r->count, r->first_ms, r->ms, r->flops);
        }
    }
    if (f) {
        fprintf(f, "{\"op\": \"\", \"captured\": %lld, \"failed\": %lld}\n",
                (long long)times.num_captured, (long long)times.num_failed);
        fclose(f);
    }
    pthread_mutex_unlock(&times.lock);
}
