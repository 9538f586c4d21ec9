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

/* As rmsnorm_bwd_kernel, with per_row threads a row, which hold it. */
template <class T, int K>
static __global__ void __launch_bounds__(NORM_THREADS, NORM_RESIDENT(K))
    rmsnorm_bwd_held_kernel(T *dx, float *__restrict__ parts, const T *dy, const T *__restrict__ x,
                            const T *__restrict__ w, const float *__restrict__ rstd, int64_t r,
                            int d, int per_row, bool accumulate)
{
    constexpr int N = per_16_bytes<T>::value;
    CU_SHARED(float, part, [2][NORM_WARPS][1]);
    CU_SHARED(float, shared, [NORM_THREADS / 2 * K * N]);
    int lane = (int)threadIdx.x % per_row;
    int num = NORM_THREADS / per_row;
    float sum[K][N] = {};
    int parity = 0;
    for (int64_t first = (int64_t)blockIdx.x * num; first < r; first += (int64_t)gridDim.x * num) {
        int64_t row = first + (int)threadIdx.x / per_row;
        int end = row < r ? d : 0; /* barriers are for all */
        float inv = row < r ? rstd[row] : 0;
        float dot[1] = {0};
        struct vec_held<T> vx[K], vg[K];
        row_hold<T, K>(vx, x + row * d, end, per_row);
        row_hold<T, K>(vg, dy + row * d, end, per_row);
#pragma unroll
        for (int k = 0; k < K; k++) {
            int i = (k * per_row + lane) * N;
            if (i < end) {
                struct vec_held<T> vw = vec_hold(w + i);
#pragma unroll
                for (int j = 0; j < N; j++) {
                    float gx = vec_float(vg[k], j) * vec_float(vx[k], j);
                    sum[k][j] += gx * inv;
                    dot[0] += gx * vec_float(vw, j);
                }
            }
        }
        row_sum(dot, part, parity, per_row);
        parity = 1 - parity;
        float pull = inv * inv * inv * dot[0] / (float)d;
#pragma unroll
        for (int k = 0; k < K; k++) {
            int i = (k * per_row + lane) * N;
            if (i < end) {
                struct vec_held<T> vw = vec_hold(w + i);
                float out[N] = {};
                if (accumulate) {
                    cu_load<T, N>(out, dx + row * d + i);
                }
#pragma unroll
                for (int j = 0; j < N; j++) {
                    out[j] +=
                        inv * vec_float(vg[k], j) * vec_float(vw, j) - pull * vec_float(vx[k], j);
                }
                cu_store(dx + row * d + i, out);
            }
        }
    }
    rows_add(parts + (int64_t)blockIdx.x * d, shared, sum, d, per_row);
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

/* Threads of a row that holds it: three times 16 bytes each, or four if there must be; 0 = too
 * long. */
template <class T> static int per_row_of(int64_t d)
{
    int threads = norm_per_row(d, per_16_bytes<T>::value, 3);
    return threads > 0 ? threads : norm_per_row(d, per_16_bytes<T>::value, 4);
}

/* dw's parts, and how many: rows that are held, and others. */
template <class T>
static int64_t backward_held(cudaStream_t s, T *dx, const T *dy, const T *x, const T *w,
                             const float *rstd, int64_t r, int64_t d, bool accumulate, float *parts)
{
    int per_row = per_row_of<T>(d);
    int times = norm_times(d, per_16_bytes<T>::value, per_row);
    auto kernel = times == 1   ? rmsnorm_bwd_held_kernel<T, 1>
                  : times == 2 ? rmsnorm_bwd_held_kernel<T, 2>
                  : times == 3 ? rmsnorm_bwd_held_kernel<T, 3>
                               : rmsnorm_bwd_held_kernel<T, 4>;
    int64_t num_parts = norm_blocks(r, per_row, times);
    CU_LAUNCH(kernel, dim3((unsigned)num_parts), dim3(NORM_THREADS), 0, s, dx, parts, dy, x, w,
              rstd, r, (int)d, per_row, accumulate);
    return num_parts;
}

template <class T>
static int64_t backward_rows(cudaStream_t s, T *dx, const T *dy, const T *x, const T *w,
                             const float *rstd, int64_t r, int64_t d, bool accumulate, bool fits,
                             float *parts)
{
    constexpr int wide = per_16_bytes<T>::value;
    auto kernel = fits ? rmsnorm_bwd_kernel<T, wide> : rmsnorm_bwd_kernel<T, 1>;
    bool in_shared = d * (int64_t)sizeof(float) <= NORM_SHARED_BYTES;
    size_t bytes = in_shared ? (size_t)d * sizeof(float) : 0;
    int64_t num_parts = workspace_norm_parts(r);
    if (cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             NORM_SHARED_BYTES) == cudaSuccess) {
        CU_LAUNCH(kernel, dim3((unsigned)num_parts), dim3(norm_threads(d, fits ? wide : 1)), bytes,
                  s, dx, parts, dy, x, w, rstd, r, (int)d, accumulate, in_shared);
    }
    return num_parts;
}

template <class T>
static cudaError_t backward(cudaStream_t s, T *dx, float *dw, const T *dy, const T *x, const T *w,
                            const float *rstd, int64_t r, int64_t d, bool accumulate, float *parts)
{
    bool fits = vec_fits(dx, d) && vec_fits(dy, d) && vec_fits(x, d) && vec_fits(w, d);
    int64_t num_parts = fits && per_row_of<T>(d) > 0
                            ? backward_held(s, dx, dy, x, w, rstd, r, d, accumulate, parts)
                            : backward_rows(s, dx, dy, x, w, rstd, r, d, accumulate, fits, parts);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) {
        columns_add(s, {dw, NULL, d}, parts, num_parts, d);
        e = cudaGetLastError();
    }
    return e;
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
