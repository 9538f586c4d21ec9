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
    loop_fn rope;          /* rope_args */
    loop_fn attention_fwd; /* attention_args */
    loop_fn attention_bwd; /* attention_args */
    loop_fn swiglu_fwd;    /* swiglu_args */
    loop_fn swiglu_bwd;    /* swiglu_args */
    loop_fn add;           /* add_args */
    loop_fn scale;         /* scale_args */
    loop_fn cross_entropy; /* cross_entropy_args */
    loop_fn sum_squares;   /* sum_args */
    loop_fn adamw;         /* adamw_args */
    loop_fn sgd;           /* sgd_args */
    size_t (*rmsnorm_bwd_workspace)(int64_t r, int64_t d);
    size_t (*attention_workspace)(int num_threads, int64_t b, int64_t seq_len, int64_t h,
                                  int64_t kv, int64_t e);
};

struct embed_args {
    void *out;      /* y or dw */
    const void *in; /* w or dy */
    const int32_t *ids;
    int64_t r, v, d;
};

struct rmsnorm_args {
    void *y, *rstd; /* forward: out */
    const void *x, *w;
    int64_t r, d;
    double eps;
    const void *dy, *rstd_in; /* backward */
    void *dx, *dw, *workspace;
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
    int64_t r, v;
};

struct sum_args {
    double *out;
    const void *x;
    int64_t n;
};

struct sgd_args {
    void *w;
    const void *g;
    double lr, decay, grad_scale;
    int64_t n;
};

struct cast_args {
    void *dst;
    const void *src;
    enum dtype dst_t, src_t;
    int64_t n;
};

/* The same for every host backend (cast.c): all pairs of f32, f64 and bf16 but f64 and bf16 to
 * bf16. */
bool cast_is_known(enum dtype dst, enum dtype src);
void cast_loop(struct pool *pool, const void *args);

/* The target that counts for nothing. */
#define IGNORED_TARGET (-100)

#endif
