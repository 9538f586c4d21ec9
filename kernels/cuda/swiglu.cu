/* SwiGLU: silu(gate) * up. Bytes a number: forward 3, backward 5 times its type's.
 * Source: Shazeer 2020, eq. 6. */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

template <class T> struct swiglu_fwd_each {
    T *y;
    const T *gate, *up;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float g[N], u[N];
        cu_load<T, N>(g, gate + i);
        cu_load<T, N>(u, up + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            u[j] *= __fdividef(g[j], 1 + expf(-g[j]));
        }
        cu_store(y + i, u);
    }
};

template <class T> struct swiglu_bwd_each {
    T *dgate, *dup;
    const T *dy, *gate, *up;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float g[N], u[N], d[N];
        cu_load<T, N>(g, gate + i);
        cu_load<T, N>(u, up + i);
        cu_load<T, N>(d, dy + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float s = __fdividef(1.0f, 1 + expf(-g[j]));
            u[j] *= d[j] * s * (1 + g[j] * (1 - s));
            g[j] *= d[j] * s;
        }
        cu_store(dgate + i, u);
        cu_store(dup + i, g);
    }
};

template <class T>
static cudaError_t forward(cudaStream_t s, void *y, const void *gate, const void *up, int64_t n)
{
    constexpr int wide = per_16_bytes<T>::value;
    struct swiglu_fwd_each<T> f = {
        (T *)y, (const T *)gate, (const T *)up
    };
    return each<wide>(s, f, n,
                      vec_aligned<T, wide>(f.y) && vec_aligned<T, wide>(f.gate) &&
                          vec_aligned<T, wide>(f.up));
}

template <class T>
static cudaError_t backward(cudaStream_t s, void *dgate, void *dup, const void *dy,
                            const void *gate, const void *up, int64_t n)
{
    constexpr int wide = per_16_bytes<T>::value;
    struct swiglu_bwd_each<T> f = {
        (T *)dgate, (T *)dup, (const T *)dy, (const T *)gate, (const T *)up
    };
    return each<wide>(s, f, n,
                      vec_aligned<T, wide>(f.dgate) && vec_aligned<T, wide>(f.dup) &&
                          vec_aligned<T, wide>(f.dy) && vec_aligned<T, wide>(f.gate) &&
                          vec_aligned<T, wide>(f.up));
}

extern "C" cudaError_t cuda_swiglu_fwd(cudaStream_t s, enum dtype t, void *y, const void *gate,
                                       const void *up, int64_t n)
{
    switch (t) {
    case DTYPE_F32:
        return forward<float>(s, y, gate, up, n);
    case DTYPE_BF16:
        return forward<__nv_bfloat16>(s, y, gate, up, n);
    default:
        return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t cuda_swiglu_bwd(cudaStream_t s, enum dtype t, void *dgate, void *dup,
                                       const void *dy, const void *gate, const void *up, int64_t n)
{
    switch (t) {
    case DTYPE_F32:
        return backward<float>(s, dgate, dup, dy, gate, up, n);
    case DTYPE_BF16:
        return backward<__nv_bfloat16>(s, dgate, dup, dy, gate, up, n);
    default:
        return cudaErrorInvalidValue;
    }
}
