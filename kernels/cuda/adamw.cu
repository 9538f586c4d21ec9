/* AdamW: one pass over weights, moments and gradients, 16 bytes at a time.
 * Source: Loshchilov & Hutter 2019, algorithm 2. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256
#define MAX_BLOCKS 2112 /* 16 for each multiprocessor of an H100 */

/* What is the same for all numbers, worked out in double. */
struct rule {
    float keep1, take1; /* m = keep1 * m + take1 * g */
    float keep2, take2;
    float step;   /* lr / bias1 */
    float root;   /* 1 / sqrt(bias2) */
    float shrink; /* lr * decay */
    float eps, grad_scale;
};

template <int N>
static __global__ void __launch_bounds__(NUM_THREADS)
    adamw_kernel(float *__restrict__ w, float *__restrict__ m, float *__restrict__ v,
                 const float *__restrict__ g, int64_t n, struct rule a)
{
    int64_t stride = (int64_t)gridDim.x * NUM_THREADS * N;
    for (int64_t i = ((int64_t)blockIdx.x * NUM_THREADS + threadIdx.x) * N; i < n; i += stride) {
        vec<float, N> vw = vec_load<float, N>(w + i);
        vec<float, N> vm = vec_load<float, N>(m + i);
        vec<float, N> vv = vec_load<float, N>(v + i);
        vec<float, N> vg = vec_load<float, N>(g + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float grad = vg.v[j] * a.grad_scale;
            float first = a.keep1 * vm.v[j] + a.take1 * grad;
            float second = a.keep2 * vv.v[j] + a.take2 * grad * grad;
            float step = a.step * first / (sqrtf(second) * a.root + a.eps);
            vm.v[j] = first;
            vv.v[j] = second;
            vw.v[j] -= step + a.shrink * vw.v[j];
        }
        vec_store<float, N>(w + i, vw);
        vec_store<float, N>(m + i, vm);
        vec_store<float, N>(v + i, vv);
    }
}

template <int N>
static void launch(cudaStream_t s, const struct cuda_adamw_args *a, int64_t first, int64_t n,
                   const struct rule *rule)
{
    int64_t per_block = (int64_t)NUM_THREADS * N;
    int64_t num_blocks = (n + per_block - 1) / per_block;
    unsigned grid = (unsigned)(num_blocks < MAX_BLOCKS ? num_blocks : MAX_BLOCKS);
    if (n > 0) {
        CU_LAUNCH(adamw_kernel<N>, dim3(grid), dim3(NUM_THREADS), 0, s, a->w + first, a->m + first,
                  a->v + first, a->g + first, n, *rule);
    }
}

extern "C" cudaError_t cuda_adamw(cudaStream_t s, const struct cuda_adamw_args *a)
{
    if (a->n < 0) {
        return cudaErrorInvalidValue;
    }
    struct rule rule = {
        (float)a->beta1,           (float)(1 - a->beta1),
        (float)a->beta2,           (float)(1 - a->beta2),
        (float)(a->lr / a->bias1), (float)(1 / sqrt(a->bias2)),
        (float)(a->lr * a->decay), (float)a->eps,
        (float)a->grad_scale,
    };
    constexpr int wide = per_16_bytes<float>::value;
    bool fits = vec_fits(a->w, 0) && vec_fits(a->m, 0) && vec_fits(a->v, 0) && vec_fits(a->g, 0);
    int64_t num_wide = fits ? a->n / wide * wide : 0;
    launch<wide>(s, a, 0, num_wide, &rule);
    launch<1>(s, a, num_wide, a->n - num_wide, &rule);
    return cudaGetLastError();
}
