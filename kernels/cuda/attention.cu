/* Attention: which kernels take a problem, and the small ones that come before them. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/vec.cuh"

#include <limits.h>

#define NUM_THREADS 256
/* Threads that share a row of dots_kernel. */
#define ROW_LANES 16
#define MAX_WIDTH 256

/* dots[b, h, t] = sum(dO * O): 16 threads a row. Rows lie as [B,T,H]. */
template <class T, int N>
static __global__ void __launch_bounds__(NUM_THREADS)
    dots_kernel(float *__restrict__ dots, const T *__restrict__ o, const T *__restrict__ d_o,
                int num_rows, int t, int h, int e)
{
    int row = (int)(blockIdx.x * (NUM_THREADS / ROW_LANES) + threadIdx.x / ROW_LANES);
    int lane = (int)threadIdx.x % ROW_LANES;
    float sum = 0;
    if (row < num_rows) {
        int64_t at = (int64_t)row * e;
        for (int i = lane * N; i < e; i += ROW_LANES * N) {
            vec<T, N> x = vec_load<T, N>(o + at + i);
            vec<T, N> y = vec_load<T, N>(d_o + at + i);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum += cu_float(x.v[j]) * cu_float(y.v[j]);
            }
        }
    }
#pragma unroll
    for (int bit = ROW_LANES / 2; bit > 0; bit /= 2) {
        sum += __shfl_xor_sync(CU_ALL_LANES, sum, bit);
    }
    if (row < num_rows && lane == 0) {
        int head = row % h;
        int position = row / h % t;
        int b = row / h / t;
        dots[((int64_t)b * h + head) * t + position] = sum;
    }
}

/* Least and largest segment of each tile: a warp a tile. */
static __global__ void __launch_bounds__(NUM_THREADS)
    ranges_kernel(int2 *__restrict__ ranges, const int32_t *__restrict__ segments, int num,
                  int num_tiles, int t)
{
    int i = (int)(blockIdx.x * (NUM_THREADS / CU_WARP) + threadIdx.x / CU_WARP);
    int lane = (int)threadIdx.x % CU_WARP;
    int least = INT_MAX, largest = INT_MIN;
    if (i < num) {
        const int32_t *row = segments + (int64_t)(i / num_tiles) * t;
        int first = i % num_tiles * ATTENTION_TILE;
        for (int j = first + lane; j < first + ATTENTION_TILE && j < t; j += CU_WARP) {
            least = min(least, row[j]);
            largest = max(largest, row[j]);
        }
    }
#pragma unroll
    for (int bit = CU_WARP / 2; bit > 0; bit /= 2) {
        least = min(least, __shfl_xor_sync(CU_ALL_LANES, least, bit));
        largest = max(largest, __shfl_xor_sync(CU_ALL_LANES, largest, bit));
    }
    if (i < num && lane == 0) {
        ranges[i] = int2{least, largest};
    }
}

template <class T, int N>
static void launch_dots(cudaStream_t s, const struct attention_problem<T> *p, float *dots)
{
    int num_rows = p->b * p->t * p->h;
    unsigned per_block = NUM_THREADS / ROW_LANES;
    CU_LAUNCH((dots_kernel<T, N>), dim3(((unsigned)num_rows + per_block - 1) / per_block),
              dim3(NUM_THREADS), 0, s, dots, p->o, p->d_o, num_rows, p->t, p->h, p->e);
}

/* Can all rows be taken 16 bytes at a time? */
template <class T> static bool fits(const struct attention_problem<T> *p, bool backward)
{
    bool all = vec_fits(p->q, p->e) && vec_fits(p->k, p->e) && vec_fits(p->v, p->e);
    return all &&
           (backward ? vec_fits(p->o, p->e) && vec_fits(p->d_o, p->e) && vec_fits(p->dq, p->e) &&
                           vec_fits(p->dk, p->e) && vec_fits(p->dv, p->e)
                     : vec_fits(p->out, p->e));
}

/* What comes before the kernels: fills the workspace. */
template <class T>
static void prepare(cudaStream_t s, struct attention_problem<T> *p, void *workspace, bool backward)
{
    if (backward) {
        float *dots = (float *)workspace;
        p->dots = dots;
        if (fits(p, true)) {
            launch_dots<T, per_16_bytes<T>::value>(s, p, dots);
        } else {
            launch_dots<T, 1>(s, p, dots);
        }
    }
    if (p->segments) {
        int2 *ranges = (int2 *)((char *)workspace + workspace_attention_dots(p->b, p->t, p->h));
        int num_tiles = (p->t + ATTENTION_TILE - 1) / ATTENTION_TILE;
        int num = p->b * num_tiles;
        unsigned per_block = NUM_THREADS / CU_WARP;
        p->ranges = ranges;
        CU_LAUNCH(ranges_kernel, dim3(((unsigned)num + per_block - 1) / per_block),
                  dim3(NUM_THREADS), 0, s, ranges, p->segments, num, num_tiles, p->t);
    }
}

template <class T> static struct attention_problem<T> problem_of(const struct attention_args *a) {
    struct attention_problem<T> p = {
    };
    p.q = (const T *)a->q;
    p.k = (const T *)a->k;
    p.v = (const T *)a->v;
    p.o = (const T *)a->o;
    p.d_o = (const T *)a->d_o;
    p.out = (T *)a->o;
    p.dq = (T *)a->dq;
    p.dk = (T *)a->dk;
    p.dv = (T *)a->dv;
    p.lse = (float *)a->lse;
    p.segments = a->segments;
    p.b = (int)a->b;
    p.t = (int)a->t;
    p.h = (int)a->h;
    p.kv = (int)a->kv;
    p.e = (int)a->e;
    p.scale = (float)a->scale;
    return p;
}

/* Narrow heads are cheaper without tensor cores' padding. The running maximum of the others is that
 * of scores before they are scaled. */
static bool
takes_mma(const struct attention_problem<float> *, bool)
{
    return false;
}
static bool takes_mma(const struct attention_problem<__nv_bfloat16> *p, bool backward)
{
    return p->e >= 32 && p->e <= 128 && p->e % 8 == 0 && p->scale > 0 && fits(p, backward);
}

static cudaError_t mma(cudaStream_t, const struct attention_problem<float> *, bool)
{
    return cudaErrorInvalidValue;
}
static cudaError_t mma(cudaStream_t s, const struct attention_problem<__nv_bfloat16> *p,
                       bool backward)
{
    if (!backward) {
        return attention_mma_fwd(s, p);
    }
    cudaError_t e = attention_mma_dq(s, p);
    return e == cudaSuccess ? attention_mma_dkv(s, p) : e;
}

template <class T>
static cudaError_t attend(cudaStream_t s, const struct attention_args *a, bool backward)
{
    struct attention_problem<T> p = problem_of<T>(a);
    prepare(s, &p, a->workspace, backward);
    return takes_mma(&p, backward) ? mma(s, &p, backward)
           : backward              ? attention_simt_bwd(s, &p)
                                   : attention_simt_fwd(s, &p);
}

static cudaError_t check(const struct attention_args *a, enum dtype t, bool backward)
{
    bool sound = (t == DTYPE_F32 || t == DTYPE_BF16) && a->b >= 0 && a->t >= 0 && a->h >= 0 &&
                 a->kv > 0 && a->h % a->kv == 0 && a->e >= 1 && a->e <= MAX_WIDTH &&
                 (uintptr_t)a->workspace % 16 == 0;
    /* Rows are counted in int, and so are the numbers of a tile with what lies between. */
    sound = sound && a->b <= INT_MAX && a->t <= INT_MAX && a->h <= INT_MAX &&
            (double)a->b * (double)(a->t + ATTENTION_TILE) * (double)a->h < INT_MAX &&
            (double)a->h * (double)a->e * ATTENTION_TILE * 2 < INT_MAX;
    bool needs = backward || a->segments;
    return sound && (!needs || a->workspace || a->b * a->t * a->h == 0) ? cudaSuccess
                                                                        : cudaErrorInvalidValue;
}

static cudaError_t attend_any(cudaStream_t s, enum dtype t, const struct attention_args *a,
                              bool backward)
{
    cudaError_t e = check(a, t, backward);
    if (e != cudaSuccess || a->b * a->t * a->h == 0) {
        return e;
    }
    return t == DTYPE_F32 ? attend<float>(s, a, backward) : attend<__nv_bfloat16>(s, a, backward);
}

extern "C" cudaError_t cuda_attention_fwd(cudaStream_t s, enum dtype t,
                                          const struct attention_args *a)
{
    return attend_any(s, t, a, false);
}

extern "C" cudaError_t cuda_attention_bwd(cudaStream_t s, enum dtype t,
                                          const struct attention_args *a)
{
    return attend_any(s, t, a, true);
}
