/* Numbers as they lie in memory, up to 16 bytes at once, and as float. */
#ifndef TANDEM_KERNELS_CUDA_VEC_CUH
#define TANDEM_KERNELS_CUDA_VEC_CUH

#include "kernels/cuda/cu.h"

static __device__ __forceinline__ float cu_float(float x)
{
    return x;
}
static __device__ __forceinline__ float cu_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ void cu_set(float *x, float value)
{
    *x = value;
}
static __device__ __forceinline__ void cu_set(__nv_bfloat16 *x, float value)
{
    *x = __float2bfloat16(value);
}

/* N numbers, loaded and stored at once. */
template <class T, int N> struct alignas(sizeof(T) * N) vec {
    T v[N];
};

/* How many T make 16 bytes. */
template <class T> struct per_16_bytes {
    static constexpr int value = 16 / sizeof(T);
};

template <class T, int N> static __device__ __forceinline__ vec<T, N> vec_load(const T *p)
{
    CU_CHECK_ALIGNED(p, sizeof(vec<T, N>));
    return *reinterpret_cast<const vec<T, N> *>(p);
}

template <class T, int N> static __device__ __forceinline__ void vec_store(T *p, const vec<T, N> &x)
{
    CU_CHECK_ALIGNED(p, sizeof(vec<T, N>));
    *reinterpret_cast<vec<T, N> *>(p) = x;
}

/* Host: can rows of `stride` numbers from p on be read 16 bytes at a time? */
template <class T> static inline bool vec_fits(const T *p, int64_t stride)
{
    return (uintptr_t)p % 16 == 0 && stride % per_16_bytes<T>::value == 0;
}

#endif
