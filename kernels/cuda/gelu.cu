/* GELU. Bytes a number: forward 2, backward 3 times its type's. */
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

template <class T> struct gelu_fwd_each {
    T *y;
    const T *x;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float f[N];
        cu_load<T, N>(f, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            f[j] = gelu_of(f[j]);
        }
        cu_store(y + i, f);
    }
};

template <class T> struct gelu_bwd_each {
    T *dx;
    const T *dy, *x;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float f[N], g[N];
        cu_load<T, N>(f, x + i);
        cu_load<T, N>(g, dy + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            g[j] *= gelu_slope(f[j]);
        }
        cu_store(dx + i, g);
    }
};

template <class T> static cudaError_t forward(cudaStream_t s, void *y, const void *x, int64_t n)
{
    constexpr int wide = per_16_bytes<T>::value;
    struct gelu_fwd_each<T> f = {
        (T *)y, (const T *)x
    };
    return each<wide>(s, f, n, vec_aligned<T, wide>(f.y) && vec_aligned<T, wide>(f.x));
}

template <class T>
static cudaError_t backward(cudaStream_t s, void *dx, const void *dy, const void *x, int64_t n)
{
    constexpr int wide = per_16_bytes<T>::value;
    struct gelu_bwd_each<T> f = {
        (T *)dx, (const T *)dy, (const T *)x
    };
    return each<wide>(s, f, n,
                      vec_aligned<T, wide>(f.dx) && vec_aligned<T, wide>(f.dy) &&
                          vec_aligned<T, wide>(f.x));
}

extern "C" cudaError_t cuda_gelu_fwd(cudaStream_t s, enum dtype t, void *y, const void *x,
                                     int64_t n)
{
    switch (t) {
    case DTYPE_F32:
        return forward<float>(s, y, x, n);
    case DTYPE_BF16:
        return forward<__nv_bfloat16>(s, y, x, n);
    default:
        return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t cuda_gelu_bwd(cudaStream_t s, enum dtype t, void *dx, const void *dy,
                                     const void *x, int64_t n)
{
    switch (t) {
    case DTYPE_F32:
        return backward<float>(s, dx, dy, x, n);
    case DTYPE_BF16:
        return backward<__nv_bfloat16>(s, dx, dy, x, n);
    default:
        return cudaErrorInvalidValue;
    }
}
