/* AdamW and SGD over many runs of numbers at once: a block a chunk of one run. Bytes a number:
 * AdamW 28 (w, m, v read and written, g read), SGD 12; 2 more where bf16 copies are written.
 * Source of AdamW: Loshchilov & Hutter 2019, algorithm 2. */
#include "kernels/cuda/chunks.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256
/* So many runs fit into a kernel's 4 KB of arguments. */
#define MAX_RUNS 80

/* What is the same for all numbers, worked out in double. */
struct rule {
    float keep1, take1; /* m = keep1 * m + take1 * g */
    float keep2, take2;
    float step; /* AdamW: lr / bias1; SGD: lr */
    float root; /* 1 / sqrt(bias2) */
    float eps;
};

struct numbers {
    float *w, *m, *v;
    const float *g;
    __nv_bfloat16 *low; /* NULL: none */
};

struct run {
    int64_t w, g, m, low, n;
    float shrink;  /* lr * decay */
    int32_t first; /* chunks of the runs before */
};

struct run_list {
    struct run runs[MAX_RUNS];
    int32_t num, num_chunks;

    __device__ __forceinline__ int first_chunk(int i) const
    {
        return runs[i].first;
    }
};

template <bool ADAM, int N>
static __device__ __forceinline__ void step_at(const struct numbers &a, int i,
                                               const struct rule &rule, float shrink, float scale)
{
    float w[N], g[N], m[N], v[N];
    cu_load<float, N>(w, a.w + i);
    cu_load<float, N>(g, a.g + i);
    if (ADAM) {
        cu_load<float, N>(m, a.m + i);
        cu_load<float, N>(v, a.v + i);
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        float grad = g[j] * scale;
        float step = rule.step * grad;
        if (ADAM) {
            m[j] = rule.keep1 * m[j] + rule.take1 * grad;
            v[j] = rule.keep2 * v[j] + rule.take2 * grad * grad;
            step = __fdividef(rule.step * m[j], sqrtf(v[j]) * rule.root + rule.eps);
        }
        w[j] -= step + shrink * w[j];
    }
    cu_store(a.w + i, w);
    if (ADAM) {
        cu_store(a.m + i, m);
        cu_store(a.v + i, v);
    }
    if (a.low != NULL) {
        cu_store(a.low + i, w);
    }
}

/* Where a chunk's first 16 bytes begin, if they do so in all of its arrays; else n. */
template <bool ADAM> static __device__ __forceinline__ int wide_from(const struct numbers &a, int n)
{
    unsigned at = (unsigned)((uintptr_t)a.w / sizeof(float) % 4);
    bool same = at == (unsigned)((uintptr_t)a.g / sizeof(float) % 4);
    if (ADAM) {
        same = same && at == (unsigned)((uintptr_t)a.m / sizeof(float) % 4) &&
               at == (unsigned)((uintptr_t)a.v / sizeof(float) % 4);
    }
    same =
        same && (a.low == NULL || at == (unsigned)((uintptr_t)a.low / sizeof(__nv_bfloat16) % 4));
    int from = (int)(-at % 4);
    return same && from < n ? from : n;
}

template <bool ADAM>
static __global__ void __launch_bounds__(NUM_THREADS)
    step_kernel(struct numbers a, const double *__restrict__ grad_scale, struct rule rule,
                struct run_list list)
{
    double factor = grad_scale != NULL ? *grad_scale : 1.0;
    int at = chunk_owner(list, (int)blockIdx.x);
    const struct run &run = list.runs[at];
    int64_t from = (int64_t)((int)blockIdx.x - run.first) * CHUNK;
    int n = (int)(run.n - from < CHUNK ? run.n - from : CHUNK);
    float shrink = run.shrink;
    float scale = (float)factor;
    a.w += run.w + from;
    a.g += run.g + from;
    if (ADAM) {
        a.m += run.m + from;
        a.v += run.m + from;
    }
    a.low = a.low != NULL ? a.low + run.low + from : NULL;
    n = isfinite(factor) ? n : 0;
    int begin = wide_from<ADAM>(a, n);
    int end = begin + (n - begin) / 4 * 4;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < begin; i += NUM_THREADS) {
        step_at<ADAM, 1>(a, i, rule, shrink, scale);
    }
    for (int i = begin + (int)threadIdx.x * 4; i < end; i += NUM_THREADS * 4) {
        step_at<ADAM, 4>(a, i, rule, shrink, scale);
    }
    if (end + (int)threadIdx.x < n) {
        step_at<ADAM, 1>(a, end + (int)threadIdx.x, rule, shrink, scale);
    }
}

/* Takes runs until the list is full; returns how many, or -1. */
static int32_t list_fill(struct run_list *list, const struct step_args *a, int32_t done)
{
    int64_t chunks = 0;
    int32_t num = 0;
    for (; done + num < a->num_runs && num < MAX_RUNS; num++) {
        const struct step_run *r = &a->runs[done + num];
        if (r->n < 0 || r->w < 0 || r->g < 0 || r->m < 0 || r->low < 0) {
            return -1;
        }
        list->runs[num] = {r->w,           r->g, r->m, r->low, r->n, (float)(a->lr * r->decay),
                           (int32_t)chunks};
        chunks += chunks_of(r->n);
        if (chunks > INT32_MAX) {
            return -1;
        }
    }
    list->num = num;
    list->num_chunks = (int32_t)chunks;
    return num;
}

template <bool ADAM>
static cudaError_t launch(cudaStream_t s, const struct step_args *a, struct rule rule)
{
    struct numbers numbers = {(float *)a->w, (float *)a->m, (float *)a->v, (const float *)a->g,
                              (__nv_bfloat16 *)a->low};
    for (int32_t done = 0; done < a->num_runs;) {
        struct run_list list;
        int32_t taken = list_fill(&list, a, done);
        if (taken < 0) {
            return cudaErrorInvalidValue;
        }
        if (list.num_chunks > 0) {
            CU_LAUNCH(step_kernel<ADAM>, dim3((unsigned)list.num_chunks), dim3(NUM_THREADS), 0, s,
                      numbers, a->grad_scale, rule, list);
        }
        done += taken;
    }
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_adamw(cudaStream_t s, const struct step_args *a)
{
    struct rule rule = {
        (float)a->beta1,       (float)(1 - a->beta1),     (float)a->beta2,
        (float)(1 - a->beta2), (float)(a->lr / a->bias1), (float)(1 / sqrt(a->bias2)),
        (float)a->eps};
    return launch<true>(s, a, rule);
}

extern "C" cudaError_t cuda_sgd(cudaStream_t s, const struct step_args *a)
{
    struct rule rule = {0, 0, 0, 0, (float)a->lr, 0, 0};
    return launch<false>(s, a, rule);
}
