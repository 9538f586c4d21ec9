/* Conversions between types of numbers, to the nearest, ties to even. Bytes a number: those of both
 * types. */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

static __device__ __forceinline__ void convert(float *to, double x)
{
    *to = (float)x;
}
static __device__ __forceinline__ void convert(double *to, float x)
{
    *to = (double)x;
}
static __device__ __forceinline__ void convert(float *to, __nv_bfloat16 x)
{
    *to = __bfloat162float(x);
}
static __device__ __forceinline__ void convert(double *to, __nv_bfloat16 x)
{
    *to = (double)__bfloat162float(x);
}
static __device__ __forceinline__ void convert(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16(x);
}
static __device__ __forceinline__ void convert(__nv_bfloat16 *to, double x)
{
    *to = __float2bfloat16((float)x); /* as hosts do it */
}
template <class T> static __device__ __forceinline__ void convert(T *to, T x)
{
    *to = x;
}

template <class D, class S> struct cast_each {
    D *dst;
    const S *src;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        constexpr int in = vec_piece<S, N>::value;
        constexpr int out = vec_piece<D, N>::value;
        D x[N];
#pragma unroll
        for (int j = 0; j < N; j += in) {
            vec<S, in> from = vec_load<S, in>(src + i + j);
#pragma unroll
            for (int k = 0; k < in; k++) {
                convert(&x[j + k], from.v[k]);
            }
        }
#pragma unroll
        for (int j = 0; j < N; j += out) {
            vec<D, out> to;
#pragma unroll
            for (int k = 0; k < out; k++) {
                to.v[k] = x[j + k];
            }
            vec_store<D, out>(dst + i + j, to);
        }
    }
};

template <class D, class S>
static cudaError_t cast(cudaStream_t s, void *dst, const void *src, int64_t n)
{
    constexpr int wide = (int)(16 / (sizeof(D) < sizeof(S) ? sizeof(D) : sizeof(S)));
    struct cast_each<D, S> f = {
        (D *)dst, (const S *)src
    };
    return each<wide>(s, f, n, vec_aligned<D, wide>(f.dst) && vec_aligned<S, wide>(f.src));
}

#define PAIR(dst, src) ((int)(dst)*8 + (int)(src))

extern "C" cudaError_t cuda_cast(cudaStream_t s, void *dst, enum dtype dst_t, const void *src,
                                 enum dtype src_t, int64_t n)
{
    switch (PAIR(dst_t, src_t)) {
    case PAIR(DTYPE_F32, DTYPE_F32):
        return cast<float, float>(s, dst, src, n);
    case PAIR(DTYPE_F32, DTYPE_F64):
        return cast<float, double>(s, dst, src, n);
    case PAIR(DTYPE_F32, DTYPE_BF16):
        return cast<float, __nv_bfloat16>(s, dst, src, n);
    case PAIR(DTYPE_F64, DTYPE_F32):
        return cast<double, float>(s, dst, src, n);
    case PAIR(DTYPE_F64, DTYPE_F64):
        return cast<double, double>(s, dst, src, n);
    case PAIR(DTYPE_F64, DTYPE_BF16):
        return cast<double, __nv_bfloat16>(s, dst, src, n);
    case PAIR(DTYPE_BF16, DTYPE_F32):
        return cast<__nv_bfloat16, float>(s, dst, src, n);
    case PAIR(DTYPE_BF16, DTYPE_F64):
        return cast<__nv_bfloat16, double>(s, dst, src, n);
    case PAIR(DTYPE_BF16, DTYPE_BF16):
        return cast<__nv_bfloat16, __nv_bfloat16>(s, dst, src, n);
    default:
        return cudaErrorInvalidValue;
    }
}
