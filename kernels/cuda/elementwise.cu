/* Sums and multiples, also of f64, as words that belong to a whole step are. Bytes a number: add 3,
 * scale 2 times its type's. */
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

template <class T> struct add_each {
    T *y;
    const T *a, *b;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float x[N], z[N];
        cu_load<T, N>(x, a + i);
        cu_load<T, N>(z, b + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            x[j] += z[j];
        }
        cu_store(y + i, x);
    }
};

template <class T> struct scale_each {
    T *x;
    float factor;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        float f[N];
        cu_load<T, N>(f, x + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            f[j] *= factor;
        }
        cu_store(x + i, f);
    }
};

struct add_double {
    double *y;
    const double *a, *b;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        y[i] = a[i] + b[i];
    }
};

struct scale_double {
    double *x, factor;
    template <int N> __device__ __forceinline__ void at(int64_t i) const
    {
        x[i] *= factor;
    }
};

template <class T>
static cudaError_t add(cudaStream_t s, void *y, const void *a, const void *b, int64_t n)
{
    constexpr int wide = per_16_bytes<T>::value;
    struct add_each<T> f = {
        (T *)y, (const T *)a, (const T *)b
    };
    return each<wide>(s, f, n,
                      vec_aligned<T, wide>(f.y) && vec_aligned<T, wide>(f.a) &&
                          vec_aligned<T, wide>(f.b));
}

template <class T> static cudaError_t scale(cudaStream_t s, void *x, double factor, int64_t n)
{
    constexpr int wide = per_16_bytes<T>::value;
    struct scale_each<T> f = {
        (T *)x, (float)factor
    };
    return each<wide>(s, f, n, vec_aligned<T, wide>(f.x));
}

extern "C" cudaError_t cuda_add(cudaStream_t s, enum dtype t, void *y, const void *a, const void *b,
                                int64_t n)
{
    switch (t) {
    case DTYPE_F32:
        return add<float>(s, y, a, b, n);
    case DTYPE_BF16:
        return add<__nv_bfloat16>(s, y, a, b, n);
    case DTYPE_F64:
        return each<1>(s, add_double{(double *)y, (const double *)a, (const double *)b}, n, true);
    default:
        return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t cuda_scale(cudaStream_t s, enum dtype t, void *x, double factor, int64_t n)
{
    switch (t) {
    case DTYPE_F32:
        return scale<float>(s, x, factor, n);
    case DTYPE_BF16:
        return scale<__nv_bfloat16>(s, x, factor, n);
    case DTYPE_F64:
        return each<1>(s, scale_double{(double *)x, factor}, n, true);
    default:
        return cudaErrorInvalidValue;
    }
}
