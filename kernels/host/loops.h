/* What a host backend fills: one function an operation and type, over plain pointers. They run in
 * whichever thread a stream runs its work, share it out over a pool, and can't fail: shapes have
 * been checked in front (front.c). Meanings as in kernels/kernels.h. */
#ifndef TANDEM_KERNELS_HOST_LOOPS_H
#define TANDEM_KERNELS_HOST_LOOPS_H

#include "kernels/host/pool.h"
#include "kernels/kernels.h"

/* args: the struct named beside the field. */
typedef void (*loop_fn)(struct pool *pool, const void *args);

struct loops {
    loop_fn gemm;          /* gemm_args */
    loop_fn embed_fwd;     /* embed_args */
    loop_fn embed_bwd;     /* embed_args */
    loop_fn rmsnorm_fwd;   /* rmsnorm_args */
    loop_fn rmsnorm_bwd;   /* rmsnorm_args */
    loop_fn layernorm_fwd; /* layernorm_args */
    loop_fn layernorm_bwd; /* layernorm_args */
    loop_fn rope;          /* rope_args */
    loop_fn attention_fwd; /* attention_args */
    loop_fn attention_bwd; /* attention_args */
    loop_fn swiglu_fwd;    /* swiglu_args */
    loop_fn swiglu_bwd;    /* swiglu_args */
    loop_fn gelu_fwd;      /* gelu_args */
    loop_fn gelu_bwd;      /* gelu_args */
    loop_fn add_bias;      /* bias_args */
    loop_fn column_sum;    /* bias_args */
    loop_fn add;           /* add_args */
    loop_fn scale;         /* scale_args */
    loop_fn cross_entropy; /* cross_entropy_args */
    loop_fn ce_max;        /* ce_args */
    loop_fn ce_sum;        /* ce_args */
    loop_fn ce_finish;     /* ce_args */
    loop_fn sum_squares;   /* sum_args */
    loop_fn adamw;         /* run_args */
    loop_fn sgd;           /* run_args */
    size_t (*rmsnorm_bwd_workspace)(int64_t r, int64_t d);
    size_t (*layernorm_bwd_workspace)(int64_t r, int64_t d);
    size_t (*attention_workspace)(int num_threads, int64_t b, int64_t seq_len, int64_t h,
                                  int64_t kv, int64_t e);
};

struct embed_args {
    void *out;      /* y or dw */
    const void *in; /* w or dy */
    const int32_t *ids;
    int64_t first, r, v, d;
};

/* The row of the table that holds id; -1 = it isn't here. */
static inline int64_t embed_row(const struct embed_args *a, int32_t id)
{
    int64_t row = (int64_t)id - a->first;
    return row >= 0 && row < a->v ? row : -1;
}

struct rmsnorm_args {
    void *y, *rstd; /* forward: out */
    const void *x, *w;
    int64_t r, d;
    double eps;
    const void *dy, *rstd_in; /* backward */
    void *dx, *dw, *workspace;
    bool accumulate;
};

struct layernorm_args {
    void *y, *mean, *rstd; /* forward: out */
    const void *x, *w, *b;
    int64_t r, d;
    double eps;
    const void *dy, *mean_in, *rstd_in; /* backward */
    void *dx, *dw, *db, *workspace;
    bool accumulate;
};

struct rope_args {
    void *x;
    const void *cos, *sin;
    const int32_t *positions;
    int64_t r, seq_len, heads, e;
    bool backward;
};

struct swiglu_args {
    void *y;
    const void *gate, *up;
    const void *dy;
    void *dgate, *dup;
    int64_t n;
};

struct gelu_args {
    void *out; /* y or dx */
    const void *x;
    const void *dy;
    int64_t n;
};

struct bias_args {
    void *out;      /* y or db */
    const void *in; /* b or dy */
    int64_t r, n;
};

struct add_args {
    void *y;
    const void *a, *b;
    int64_t n;
};

struct scale_args {
    void *x;
    double factor;
    int64_t n;
};

struct cross_entropy_args {
    double *nll;
    void *dlogits;
    const void *logits;
    const int32_t *targets;
    double dloss;
    int64_t r, v, ld;
};

struct ce_args {
    struct logits_part p;
    double *out; /* max, sums or nll */
    void *dlogits;
    const double *max, *sums;
    double dloss;
};

struct sum_args {
    double *out;
    const void *x;
    int64_t n;
};

/* One run of a step. */
struct run_args {
    void *w, *m, *v;
    const void *g;
    void *low;
    const double *grad_scale;
    int64_t n;
    double lr, beta1, beta2, eps, bias1, bias2, decay;
};

/* What the run's gradients are multiplied by: the stream has come to it now. */
static inline double run_scale(const struct run_args *a)
{
    return a->grad_scale ? *a->grad_scale : 1;
}

struct cast_args {
    void *dst;
    const void *src;
    enum dtype dst_t, src_t;
    int64_t n;
};

/* The same for every host backend (cast.c): all pairs of f32, f64 and bf16. */
bool cast_is_known(enum dtype dst, enum dtype src);
void cast_loop(struct pool *pool, const void *args);

/* The target that counts for nothing. */
#define IGNORED_TARGET (-100)

#endif
