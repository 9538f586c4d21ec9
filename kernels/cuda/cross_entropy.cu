/* Cross entropy: the largest logit and the sum of powers in one pass over a row, the gradient in
 * place in a second one. Bytes a logit: 2 times its type's read (the second time from L2: so many
 * rows are under way as that has room for), and one written.
 *
 * Nothing but what is a number a row is double. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/logits.cuh"

/* Rows under way: as many as 32 of an H100's 50 MB of L2 hold, at least one for each multiprocessor
 * and not more than run at once. */
#define ROWS_BYTES (32 << 20)
#define MIN_ROWS 132
#define MAX_ROWS 528

/* One row with a target. */
template <class T, int N>
static __device__ __forceinline__ void one_row(double *nll, T *dx, const T *x, int64_t v,
                                               int64_t target, float dloss)
{
    bool known = target >= 0 && target < v;
    double wanted = 0;
    if (threadIdx.x == 0) { /* before it is overwritten */
        wanted = known ? (double)cu_float(x[target]) : (double)NAN;
    }
    struct logits_online<T> f = {
        x, -INFINITY, 0
    };
    logits_each<T, N>(f, x, v);
    float max = block_max(f.max);
    float base = logits_base(max);
    /* Who has seen no number has nothing to scale: from so far away the factor is infinite. */
    float scale = f.max == -INFINITY ? 1.0f : logits_exp(f.max - base);
    double total = block_sum((double)(f.sum * scale));
    if (threadIdx.x == 0) {
        *nll = log(total) + (double)max - wanted;
    }
    if (dx != NULL) {
        struct logits_gradient<T> g = {
            dx, x, target, base, (float)((double)dloss / total), dloss
        };
        logits_each<T, N>(g, x, v);
    }
}

/* dlogits may alias logits: a thread writes what it alone has read. */
template <class T, int N>
static __global__ void __launch_bounds__(LOGITS_THREADS)
    cross_entropy_kernel(double *__restrict__ nll, T *dlogits, const T *logits,
                         const int32_t *__restrict__ targets, float dloss, int64_t r, int64_t v,
                         int64_t ld)
{
    for (int64_t row = blockIdx.x; row < r; row += gridDim.x) {
        T *dx = dlogits != NULL ? dlogits + row * ld : NULL;
        int32_t target = targets[row];
        if (target != LOGITS_IGNORED) {
            one_row<T, N>(nll + row, dx, logits + row * ld, v, target, dloss);
        } else {
            if (threadIdx.x == 0) {
                nll[row] = 0;
            }
            if (dx != NULL) {
                struct logits_zero<T> zero = {
                    dx
                };
                logits_each<T, N>(zero, dx, v);
            }
        }
    }
}

template <class T>
static cudaError_t launch(cudaStream_t s, double *nll, T *dlogits, const T *logits,
                          const int32_t *targets, double dloss, int64_t r, int64_t v, int64_t ld)
{
    constexpr int wide = per_16_bytes<T>::value;
    int64_t rows = v > 0 ? ROWS_BYTES / ((int64_t)sizeof(T) * v) : MAX_ROWS;
    rows = rows < MIN_ROWS ? MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows;
    auto kernel =
        logits_fit(dlogits, logits) ? cross_entropy_kernel<T, wide> : cross_entropy_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)(r < rows ? r : rows)), dim3(LOGITS_THREADS), 0, s, nll,
              dlogits, logits, targets, (float)dloss, r, v, ld);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_cross_entropy(cudaStream_t s, enum dtype t, double *nll, void *dlogits,
                                          const void *logits, const int32_t *targets, double dloss,
                                          int64_t r, int64_t v, int64_t ld)
{
    if (r < 0 || v < 0 || ld < v || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || v == 0) {
        return cudaSuccess;
    }
    return t == DTYPE_F32
               ? launch(s, nll, (float *)dlogits, (const float *)logits, targets, dloss, r, v, ld)
               : launch(s, nll, (__nv_bfloat16 *)dlogits, (const __nv_bfloat16 *)logits, targets,
                        dloss, r, v, ld);
}
