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

/* N numbers are read and written in pieces of 16 bytes, or at once where they have fewer. */
template <class T, int N> struct vec_piece {
    static constexpr int value = N * sizeof(T) > 16 ? (int)(16 / sizeof(T)) : N;
};

template <class T, int N> static __device__ __forceinline__ void cu_load(float (&f)[N], const T *p)
{
    constexpr int piece = vec_piece<T, N>::value;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        vec<T, piece> x = vec_load<T, piece>(p + i);
#pragma unroll
        for (int j = 0; j < piece; j++) {
            f[i + j] = cu_float(x.v[j]);
        }
    }
}

template <int N> static __device__ __forceinline__ void cu_store(float *p, const float (&f)[N])
{
    constexpr int piece = vec_piece<float, N>::value;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        vec<float, piece> x;
#pragma unroll
        for (int j = 0; j < piece; j++) {
            x.v[j] = f[i + j];
        }
        vec_store<float, piece>(p + i, x);
    }
}

/* Two are rounded by one instruction. */
template <int N>
static __device__ __forceinline__ void cu_store(__nv_bfloat16 *p, const float (&f)[N])
{
    constexpr int piece = vec_piece<__nv_bfloat16, N>::value;
#pragma unroll
    for (int i = 0; i < N; i += piece) {
        vec<__nv_bfloat16, piece> x;
#pragma unroll
        for (int j = 0; j + 1 < piece; j += 2) {
            __nv_bfloat162 two = __floats2bfloat162_rn(f[i + j], f[i + j + 1]);
            x.v[j] = two.x;
            x.v[j + 1] = two.y;
        }
        if (piece % 2) {
            x.v[piece - 1] = __float2bfloat16(f[i + piece - 1]);
        }
        vec_store<__nv_bfloat16, piece>(p + i, x);
    }
}

/* 16 bytes of numbers as they were read, until they are wanted: half the registers of floats. */
template <class T> struct vec_held {
    uint32_t word[4];
};

template <class T> static __device__ __forceinline__ struct vec_held<T> vec_hold(const T *p) {
    vec<T, per_16_bytes<T>::value> x = vec_load<T, per_16_bytes<T>::value>(p);
    struct vec_held<T> held;
    memcpy(&held, &x, sizeof held);
    return held;
}

static __device__ __forceinline__ float
vec_float(const struct vec_held<float> &x, int j)
{
    return __uint_as_float(x.word[j]);
}
static __device__ __forceinline__ float vec_float(const struct vec_held<__nv_bfloat16> &x, int j)
{
    return __uint_as_float(j % 2 ? x.word[j / 2] & 0xffff0000u : x.word[j / 2] << 16);
}

/* Host: is p aligned for N numbers at a time? NULL is. */
template <class T, int N> static inline bool vec_aligned(const T *p)
{
    return (uintptr_t)p % (vec_piece<T, N>::value * sizeof(T)) == 0;
}

/* Host: can rows of `stride` numbers from p on be read 16 bytes at a time? */
template <class T> static inline bool vec_fits(const T *p, int64_t stride)
{
    return (uintptr_t)p % 16 == 0 && stride % per_16_bytes<T>::value == 0;
}

#endif
