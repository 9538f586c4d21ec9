/* The table of operations: one function each; every backend fills it, ref is the truth.
 *
 * Rules. Each takes a stream, allocates nothing, never synchronises, returns 0 or -1 (an error is
 * our own mistake or a device fault; the text says which operation). Row-major and dense, unless
 * said otherwise; index arrays are int32.
 * Types: `t` (fp32, fp64 or bf16) is what activations have, and the weights that meet them. Its
 * wide type (dtype_wide: fp32 for bf16, else t) is what sums are computed in, and what statistics
 * (rstd, mean, lse), RoPE's tables and gradients of parameters (dw, db) have. Each number is
 * rounded to bf16 once, where it is written.
 * Nothing to do (no rows, no columns) is legal everywhere.
 * Calls in a STREAM_QUEUE may run beside calls in the compute stream on the same device; the
 * queue's thread does them alone. No bit of a result depends on that. Gradients: activations are
 * written (dx =), parameters are accumulated (dw +=). Workspace is the caller's, its size by the
 * query beside the operation.
 *
 * Letters: R rows (micro-batch x T), B sequences, T positions, D hidden, H query heads, K key/value
 * heads, E width of a head, F ffn width, V vocabulary. */
#ifndef TANDEM_KERNELS_KERNELS_H
#define TANDEM_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

/* C[m,n] = alpha * op(A)[m,k] * op(B)[k,n] + beta * C0 + bias. Row-major; lda, ldb, ldc are the
 * distances of rows as stored. A and B have type t; C has type c_type: t, or its wide type. What
 * may be NULL costs nothing where it is; an accelerator fuses the rest into the product where it
 * can, and does it in launches of its own, between which C is rounded, where it can't. */
struct gemm_args {
    bool trans_a, trans_b;
    int64_t m, n, k;
    double alpha, beta;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *c;
    int64_t ldc;
    enum dtype c_type;
    const void *c0;   /* like C (type, ldc); NULL = C itself. Not read where beta is 0 */
    const void *bias; /* [n], type t, added to each row; or NULL */
    /* After all of the above, where not NULL: gelu = gelu_fwd(C). Like C. */
    void *gelu;
    /* After all of the above, where not NULL: C *= gelu'(gelu_of). Like C; not with gelu. */
    const void *gelu_of;
};

/* Causal attention with grouped heads. q, o [B,T,H,E]; k, v [B,T,K,E]; lse [B,H,T] (wide) =
 * log sum exp(scale q.k), kept for the backward pass. H % K = 0. Query i sees keys 0..i.
 * segments [B,T] int32 or NULL: query and key must also have the same segment. */
struct attention_args {
    int64_t b, t, h, kv, e;
    double scale;
    const void *q, *k, *v;
    const int32_t *segments;
    void *o;   /* forward: out; backward: in */
    void *lse; /* forward: out; backward: in */
    /* backward only: do in; dq, dk, dv out (=) */
    const void *d_o;
    void *dq, *dk, *dv;
    void *workspace;
};

/* Elements that lie side by side in weights, gradients and moments: where they begin in each. */
struct step_run {
    int64_t w, g, m, low, n;
    double decay; /* 0 where it doesn't apply */
};

/* All runs in one call (an accelerator: in as few launches as their list fits into).
 * adamw: w -= lr * (m^ / (sqrt(v^) + eps) + decay * w), m^ and v^ corrected by
 * bias1 = 1 - beta1^n, bias2 = 1 - beta2^n. sgd: w -= lr * (g + decay * w); no m, v.
 * g is multiplied by *grad_scale first: one double in device memory (clip below); NULL = 1. Where
 * it isn't finite, nothing is changed. */
struct step_args {
    const struct step_run *runs; /* host memory, read before the call returns */
    int32_t num_runs;
    void *w, *m, *v; /* type t: fp32 or fp64 */
    const void *g;   /* type t */
    void *low;       /* bf16 copies of what was written to w; NULL = none */
    const double *grad_scale;
    double lr, beta1, beta2, eps, bias1, bias2;
};

/* Of a flat buffer: elements at .. at + n - 1. */
struct span {
    int64_t at, n;
};

/* Logits of a part of the vocabulary: [R, ld], of whose columns the first `valid` (0..ld) are those
 * of the ids first..first+valid-1; what stands in the others is never read. */
struct logits_part {
    const void *logits;
    int64_t r, ld, valid, first;
    const int32_t *targets; /* [R], ids of the whole vocabulary or -100 */
};

struct kernels {
    const char *name;

    int (*gemm)(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
                struct error *err);

    /* y[r] = w[ids[r] - first]; zeros where the id isn't one of first..first+V-1, the rows of w.
     * ids [R]; w [V,D]; y [R,D]. */
    int (*embed_fwd)(struct device *dev, struct stream *s, enum dtype t, void *y, const void *w,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     struct error *err);
    /* dw[ids[r] - first] += dy[r], always in the same order; nothing for an id that isn't there. */
    int (*embed_bwd)(struct device *dev, struct stream *s, enum dtype t, void *dw, const void *dy,
                     const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                     void *workspace, struct error *err);
    size_t (*embed_bwd_workspace)(struct device *dev, enum dtype t, int64_t r, int64_t v,
                                  int64_t d);

    /* y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps). x, y [R,D]; w [D]; rstd [R]. y may alias
     * x. Source: Zhang & Sennrich 2019, eq. 4. */
    int (*rmsnorm_fwd)(struct device *dev, struct stream *s, enum dtype t, void *y, void *rstd,
                       const void *x, const void *w, int64_t r, int64_t d, double eps,
                       struct error *err);
    /* dx = (or += where accumulate), dw +=. dx may alias dy when not accumulating. */
    int (*rmsnorm_bwd)(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                       const void *dy, const void *x, const void *w, const void *rstd, int64_t r,
                       int64_t d, bool accumulate, void *workspace, struct error *err);
    size_t (*rmsnorm_bwd_workspace)(struct device *dev, enum dtype t, int64_t r, int64_t d);

    /* y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(mean((x - mean)^2) + eps). x, y [R,D]; w, b
     * [D]; mean, rstd [R]. y may alias x. Source: Ba et al. 2016, eq. 4. */
    int (*layernorm_fwd)(struct device *dev, struct stream *s, enum dtype t, void *y, void *mean,
                         void *rstd, const void *x, const void *w, const void *b, int64_t r,
                         int64_t d, double eps, struct error *err);
    /* dx = (or += where accumulate), dw +=, db +=. dx may alias dy when not accumulating. */
    int (*layernorm_bwd)(struct device *dev, struct stream *s, enum dtype t, void *dx, void *dw,
                         void *db, const void *dy, const void *x, const void *w, const void *mean,
                         const void *rstd, int64_t r, int64_t d, bool accumulate, void *workspace,
                         struct error *err);
    size_t (*layernorm_bwd_workspace)(struct device *dev, enum dtype t, int64_t r, int64_t d);

    /* In place on x [R,heads,E]: rotates pairs (i, i + E/2) by the angle of positions[r] (NULL:
     * r % seq_len). cos, sin [max positions, E/2]. backward: the opposite way. Hugging Face's half
     * split, not the interleaved one. */
    int (*rope)(struct device *dev, struct stream *s, enum dtype t, void *x, const void *cos,
                const void *sin, const int32_t *positions, int64_t r, int64_t seq_len,
                int64_t heads, int64_t e, bool backward, struct error *err);

    int (*attention_fwd)(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err);
    int (*attention_bwd)(struct device *dev, struct stream *s, enum dtype t,
                         const struct attention_args *a, struct error *err);
    /* The larger of forward's and backward's. */
    size_t (*attention_workspace)(struct device *dev, enum dtype t, int64_t b, int64_t seq_len,
                                  int64_t h, int64_t kv, int64_t e);

    /* y = silu(gate) * up, all [n]. */
    int (*swiglu_fwd)(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                      const void *up, int64_t n, struct error *err);
    /* dgate =, dup =; they may alias gate and up. */
    int (*swiglu_bwd)(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                      const void *dy, const void *gate, const void *up, int64_t n,
                      struct error *err);

    /* y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), [n]: Hugging Face's gelu_new. y may alias
     * x. Source: Hendrycks & Gimpel 2016. */
    int (*gelu_fwd)(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                    int64_t n, struct error *err);
    /* dx =; it may alias dy or x. */
    int (*gelu_bwd)(struct device *dev, struct stream *s, enum dtype t, void *dx, const void *dy,
                    const void *x, int64_t n, struct error *err);

    /* y [R,n] += b [n] in every row. */
    int (*add_bias)(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                    int64_t r, int64_t n, struct error *err);
    /* db [n] += the sum of the rows of dy [R,n], always in the same order. */
    int (*column_sum)(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                      int64_t r, int64_t n, struct error *err);

    /* y = a + b, [n]; y may alias either. */
    int (*add)(struct device *dev, struct stream *s, enum dtype t, void *y, const void *a,
               const void *b, int64_t n, struct error *err);
    /* x *= factor. */
    int (*scale)(struct device *dev, struct stream *s, enum dtype t, void *x, double factor,
                 int64_t n, struct error *err);

    /* Softmax cross entropy over logits [R,V], rows ld apart (what stands between them is left
     * alone). nll [R] double = -log p(target), 0 where target is -100. With dlogits, which lies as
     * logits do and may alias them: dlogits = (p - onehot) * dloss, 0 where ignored. */
    int (*cross_entropy)(struct device *dev, struct stream *s, enum dtype t, double *nll,
                         void *dlogits, const void *logits, const int32_t *targets, double dloss,
                         int64_t r, int64_t v, int64_t ld, struct error *err);

    /* The same of a vocabulary that is cut over ranks, in three parts; between them the ranks'
     * results meet: max by its maximum, sums by their sum. All statistics are double.
     * max [R] = the largest valid logit, minus infinity where there is none. Ignored rows: 0. */
    int (*ce_max)(struct device *dev, struct stream *s, enum dtype t, double *max,
                  const struct logits_part *p, struct error *err);
    /* sums [2R]: of each row the sum of e^(x - max); behind all of these, of each row the logit of
     * its target, 0 where another part has it. max is that of the whole vocabulary. Ignored rows:
     * 0. */
    int (*ce_sum)(struct device *dev, struct stream *s, enum dtype t, double *sums,
                  const double *max, const struct logits_part *p, struct error *err);
    /* nll [R] and, where it isn't NULL, dlogits [R,ld] (may alias logits) as above; max and sums
     * are those of the whole vocabulary. dlogits is 0 in the columns that aren't valid. */
    int (*ce_finish)(struct device *dev, struct stream *s, enum dtype t, double *nll, void *dlogits,
                     const double *max, const double *sums, double dloss,
                     const struct logits_part *p, struct error *err);

    /* *out (double, device memory) = sum of x^2 over all of the spans (host memory, read before the
     * call returns) of x, in double, always in the same order. */
    int (*sum_squares)(struct device *dev, struct stream *s, enum dtype t, double *out,
                       const void *x, const struct span *spans, int32_t num_spans, void *workspace,
                       struct error *err);
    size_t (*sum_squares_workspace)(struct device *dev, enum dtype t, int32_t num_spans);
    /* *out (double) = sum over x[n] (double). */
    int (*sum_double)(struct device *dev, struct stream *s, double *out, const double *x, int64_t n,
                      struct error *err);
    /* *norm = sqrt(*squares), in place where they are one; *scale = max_norm / (*norm + 1e-6) where
     * that is below 1 and max_norm > 0, else 1; where *norm isn't finite *scale is NaN, also when
     * max_norm is 0. Doubles in device memory. */
    int (*clip)(struct device *dev, struct stream *s, double *norm, double *scale,
                const double *squares, double max_norm, struct error *err);

    int (*adamw)(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
                 struct error *err);
    int (*sgd)(struct device *dev, struct stream *s, enum dtype t, const struct step_args *a,
               struct error *err);

    /* dst[i] = (type dst_t) src[i]. */
    int (*cast)(struct device *dev, struct stream *s, void *dst, enum dtype dst_t, const void *src,
                enum dtype src_t, int64_t n, struct error *err);
};

const struct kernels *kernels_ref(void);
const struct kernels *kernels_cpu(void);

struct kernels_options {
    const char *backend; /* ref, cpu, cuda */
    int num_threads;     /* host backends: of the rank, itself included, >= 1 */
    int32_t device;      /* cuda: its index among those that the process sees */
};
/* Opens the device and gives the table that goes with it. cuda: through kernels/plugin.h. */
int kernels_open(const struct kernels_options *o, struct device **dev, const struct kernels **k,
                 struct error *err);

#endif
