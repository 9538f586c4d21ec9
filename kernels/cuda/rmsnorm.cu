/* RMS norm. Bytes a number: forward 2 times its type's, backward 3 (4 where it accumulates), and
 * the parts of dw: 12 for each column and block. Source: Zhang & Sennrich 2019, eq. 4. */
#include "kernels/cuda/norm.cuh"

/* y may alias x: each thread writes what it alone has read. */
template <class T, int N>
static __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm_fwd_kernel(T *y, float *__restrict__ rstd, const T *x, const T *__restrict__ w, int d,
                       float eps)
{
    const T *row = x + (int64_t)blockIdx.x * d;
    T *out = y + (int64_t)blockIdx.x * d;
    int step = (int)blockDim.x * N;
    float squares = 0;
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float f[N];
        cu_load<T, N>(f, row + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            squares += f[j] * f[j];
        }
    }
    float inv = rsqrtf(block_sum(squares) / (float)d + eps);
    if (threadIdx.x == 0) {
        rstd[blockIdx.x] = inv;
    }
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float f[N], scale[N];
        cu_load<T, N>(f, row + i);
        cu_load<T, N>(scale, w + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            f[j] *= inv * scale[j];
        }
        cu_store(out + i, f);
    }
}

/* One row: dot of dy * w with x, and this row's share of dw. */
template <class T, int N>
static __device__ __forceinline__ float row_dot(float *part, const T *x, const T *dy,
                                                const T *__restrict__ w, float inv, int d)
{
    float dot = 0;
    for (int i = (int)threadIdx.x * N; i < d; i += (int)blockDim.x * N) {
        float vx[N], vg[N], vw[N], sum[N];
        cu_load<T, N>(vx, x + i);
        cu_load<T, N>(vg, dy + i);
        cu_load<T, N>(vw, w + i);
        cu_load<float, N>(sum, part + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float gx = vg[j] * vx[j];
            sum[j] += gx * inv;
            dot += gx * vw[j];
        }
        cu_store(part + i, sum);
    }
    return dot;
}

/* dx may alias dy: each thread writes what it alone has read, in row_dot and here. */
template <class T, int N>
static __device__ __forceinline__ void row_gradient(T *dx, const T *x, const T *dy,
                                                    const T *__restrict__ w, float inv, float pull,
                                                    int d, bool accumulate)
{
    for (int i = (int)threadIdx.x * N; i < d; i += (int)blockDim.x * N) {
        float vx[N], vg[N], vw[N], out[N] = {};
        cu_load<T, N>(vx, x + i);
        cu_load<T, N>(vg, dy + i);
        cu_load<T, N>(vw, w + i);
        if (accumulate) {
            cu_load<T, N>(out, dx + i);
        }
#pragma unroll
        for (int j = 0; j < N; j++) {
            out[j] += inv * vg[j] * vw[j] - pull * vx[j];
        }
        cu_store(dx + i, out);
    }
}

/* parts [gridDim.x, D]: of each block, dw over its rows. in_shared: they are collected in dynamic
 * shared memory of D floats. Each thread alone adds to its columns, so no barrier is needed there.
 */
template <class T, int N>
static __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm_bwd_kernel(T *dx, float *__restrict__ parts, const T *dy, const T *__restrict__ x,
                       const T *__restrict__ w, const float *__restrict__ rstd, int64_t r, int d,
                       bool accumulate, bool in_shared)
{
    int step = (int)blockDim.x * N;
    float *mine = parts + (int64_t)blockIdx.x * d;
    float *part = mine;
    if (in_shared) {
        CU_DYN_SHARED(float, shared);
        part = shared;
    }
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float zero[N] = {};
        cu_store(part + i, zero);
    }
    for (int64_t row = blockIdx.x; row < r; row += gridDim.x) {
        float inv = rstd[row];
        float dot = block_sum(row_dot<T, N>(part, x + row * d, dy + row * d, w, inv, d));
        float pull = inv * inv * inv * dot / (float)d;
        row_gradient<T, N>(dx + row * d, x + row * d, dy + row * d, w, inv, pull, d, accumulate);
    }
    for (int i = (int)threadIdx.x * N; in_shared && i < d; i += step) {
        float sum[N];
        cu_load<float, N>(sum, part + i);
        cu_store(mine + i, sum);
    }
}

template <class T>
static cudaError_t forward(cudaStream_t s, T *y, float *rstd, const T *x, const T *w, int64_t r,
                           int64_t d, double eps)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(y, d) && vec_fits(x, d) && vec_fits(w, d);
    auto kernel = fits ? rmsnorm_fwd_kernel<T, wide> : rmsnorm_fwd_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)r), dim3(norm_threads(d, fits ? wide : 1)), 0, s, y, rstd, x,
              w, (int)d, (float)eps);
    return cudaGetLastError();
}

template <class T>
static cudaError_t backward(cudaStream_t s, T *dx, float *dw, const T *dy, const T *x, const T *w,
                            const float *rstd, int64_t r, int64_t d, bool accumulate, float *parts)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(dx, d) && vec_fits(dy, d) && vec_fits(x, d) && vec_fits(w, d);
    auto kernel = fits ? rmsnorm_bwd_kernel<T, wide> : rmsnorm_bwd_kernel<T, 1>;
    bool in_shared = d * (int64_t)sizeof(float) <= NORM_SHARED_BYTES;
    size_t bytes = in_shared ? (size_t)d * sizeof(float) : 0;
    cudaError_t e = cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, NORM_SHARED_BYTES);
    if (e != cudaSuccess) {
        return e;
    }
    int64_t num_parts = workspace_norm_parts(r);
    CU_LAUNCH(kernel, dim3((unsigned)num_parts), dim3(norm_threads(d, fits ? wide : 1)), bytes, s,
              dx, parts, dy, x, w, rstd, r, (int)d, accumulate, in_shared);
    columns_add(s, {dw, NULL, d}, parts, num_parts, d);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_rmsnorm_fwd(cudaStream_t s, enum dtype t, void *y, float *rstd,
                                        const void *x, const void *w, int64_t r, int64_t d,
                                        double eps)
{
    if (!norm_sizes_fit(t, r, d)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    if (t == DTYPE_F32) {
        return forward(s, (float *)y, rstd, (const float *)x, (const float *)w, r, d, eps);
    }
    return forward(s, (__nv_bfloat16 *)y, rstd, (const __nv_bfloat16 *)x, (const __nv_bfloat16 *)w,
                   r, d, eps);
}

extern "C" cudaError_t cuda_rmsnorm_bwd(cudaStream_t s, enum dtype t, void *dx, float *dw,
                                        const void *dy, const void *x, const void *w,
                                        const float *rstd, int64_t r, int64_t d, bool accumulate,
                                        void *workspace)
{
    if (!norm_sizes_fit(t, r, d)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    float *parts = (float *)workspace;
    if (t == DTYPE_F32) {
        return backward(s, (float *)dx, dw, (const float *)dy, (const float *)x, (const float *)w,
                        rstd, r, d, accumulate, parts);
    }
    return backward(s, (__nv_bfloat16 *)dx, dw, (const __nv_bfloat16 *)dy, (const __nv_bfloat16 *)x,
                    (const __nv_bfloat16 *)w, rstd, r, d, accumulate, parts);
}
