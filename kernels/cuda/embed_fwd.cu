/* Rows of a table, by their ids: a block a row. Bytes a number: 2 times its type's. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256

template <class T, int N>
static __global__ void __launch_bounds__(NUM_THREADS)
    embed_fwd_kernel(T *__restrict__ y, const T *__restrict__ w, const int32_t *__restrict__ ids,
                     int64_t first, int64_t v, int64_t d)
{
    int64_t id = (int64_t)ids[blockIdx.x] - first;
    bool here = id >= 0 && id < v;
    T *out = y + (int64_t)blockIdx.x * d;
    for (int64_t i = (int64_t)threadIdx.x * N; i < d; i += (int64_t)blockDim.x * N) {
        float f[N] = {};
        if (here) {
            cu_load<T, N>(f, w + id * d + i);
        }
        cu_store(out + i, f);
    }
}

template <class T>
static cudaError_t forward(cudaStream_t s, T *y, const T *w, const int32_t *ids, int64_t first,
                           int64_t r, int64_t v, int64_t d)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(y, d) && vec_fits(w, d);
    int64_t threads = (d + (fits ? wide : 1) - 1) / (fits ? wide : 1);
    threads = (threads + CU_WARP - 1) / CU_WARP * CU_WARP;
    threads = threads < NUM_THREADS ? threads : NUM_THREADS;
    auto kernel = fits ? embed_fwd_kernel<T, wide> : embed_fwd_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)r), dim3((unsigned)threads), 0, s, y, w, ids, first, v, d);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_embed_fwd(cudaStream_t s, enum dtype t, void *y, const void *w,
                                      const int32_t *ids, int64_t first, int64_t r, int64_t v,
                                      int64_t d)
{
    if (r < 0 || r > INT32_MAX || v < 0 || d < 0 || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    return t == DTYPE_F32
               ? forward(s, (float *)y, (const float *)w, ids, first, r, v, d)
               : forward(s, (__nv_bfloat16 *)y, (const __nv_bfloat16 *)w, ids, first, r, v, d);
}
