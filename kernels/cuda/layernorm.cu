/* Layer norm: the variance from x - mean, in a second pass over the row in L1. Bytes a number:
 * forward 2 times its type's, backward 3 (4 where it accumulates), and the parts of dw and db: 24
 * for each column and block.
 * Source: Ba et al. 2016, eq. 4. */
#include "kernels/cuda/norm.cuh"

/* y may alias x: each thread writes what it alone has read. */
template <class T, int N>
static __global__ void __launch_bounds__(NORM_THREADS)
    layernorm_fwd_kernel(T *y, float *__restrict__ mean, float *__restrict__ rstd, const T *x,
                         const T *__restrict__ w, const T *__restrict__ b, int d, float eps)
{
    const T *row = x + (int64_t)blockIdx.x * d;
    T *out = y + (int64_t)blockIdx.x * d;
    int step = (int)blockDim.x * N;
    float sum = 0;
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float f[N];
        cu_load<T, N>(f, row + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            sum += f[j];
        }
    }
    float center = block_sum(sum) / (float)d;
    float squares = 0;
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float f[N];
        cu_load<T, N>(f, row + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            squares += (f[j] - center) * (f[j] - center);
        }
    }
    float inv = rsqrtf(block_sum(squares) / (float)d + eps);
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = center;
        rstd[blockIdx.x] = inv;
    }
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float f[N], scale[N], shift[N];
        cu_load<T, N>(f, row + i);
        cu_load<T, N>(scale, w + i);
        cu_load<T, N>(shift, b + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            f[j] = (f[j] - center) * inv * scale[j] + shift[j];
        }
        cu_store(out + i, f);
    }
}

struct row_sums {
    float sum, dot; /* of g = dy * w, and of g with n = (x - mean) * rstd */
};

/* One row, and its share of dw and, d numbers behind it, of db. */
template <class T, int N>
static __device__ __forceinline__ struct row_sums row_dots(float *part, const T *x, const T *dy,
                                                           const T *__restrict__ w, float center,
                                                           float inv, int d)
{
    struct row_sums s = {0, 0};
    for (int i = (int)threadIdx.x * N; i < d; i += (int)blockDim.x * N) {
        float vx[N], vg[N], vw[N], to_w[N], to_b[N];
        cu_load<T, N>(vx, x + i);
        cu_load<T, N>(vg, dy + i);
        cu_load<T, N>(vw, w + i);
        cu_load<float, N>(to_w, part + i);
        cu_load<float, N>(to_b, part + d + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float n = (vx[j] - center) * inv;
            float g = vg[j] * vw[j];
            to_w[j] += vg[j] * n;
            to_b[j] += vg[j];
            s.sum += g;
            s.dot += g * n;
        }
        cu_store(part + i, to_w);
        cu_store(part + d + i, to_b);
    }
    return s;
}

/* dx may alias dy: each thread writes what it alone has read, in row_dots and here. */
template <class T, int N>
static __device__ __forceinline__ void
row_gradient(T *dx, const T *x, const T *dy, const T *__restrict__ w, float center, float inv,
             struct row_sums means, int d, bool accumulate)
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
            float n = (vx[j] - center) * inv;
            out[j] += inv * (vg[j] * vw[j] - means.sum - n * means.dot);
        }
        cu_store(dx + i, out);
    }
}

/* parts [gridDim.x, 2D]: of each block, dw and db over its rows. in_shared: they are collected in
 * dynamic shared memory of 2D floats. Each thread alone adds to its columns, so no barrier is
 * needed there. */
template <class T, int N>
static __global__ void __launch_bounds__(NORM_THREADS)
    layernorm_bwd_kernel(T *dx, float *__restrict__ parts, const T *dy, const T *__restrict__ x,
                         const T *__restrict__ w, const float *__restrict__ mean,
                         const float *__restrict__ rstd, int64_t r, int d, bool accumulate,
                         bool in_shared)
{
    int step = (int)blockDim.x * N;
    float *mine = parts + (int64_t)blockIdx.x * 2 * d;
    float *part = mine;
    if (in_shared) {
        CU_DYN_SHARED(float, shared);
        part = shared;
    }
    for (int i = (int)threadIdx.x * N; i < d; i += step) {
        float zero[N] = {};
        cu_store(part + i, zero);
        cu_store(part + d + i, zero);
    }
    for (int64_t row = blockIdx.x; row < r; row += gridDim.x) {
        float center = mean[row];
        float inv = rstd[row];
        const T *in = x + row * d;
        const T *grad = dy + row * d;
        struct row_sums s = row_dots<T, N>(part, in, grad, w, center, inv, d);
        s.sum = block_sum(s.sum) / (float)d;
        s.dot = block_sum(s.dot) / (float)d;
        row_gradient<T, N>(dx + row * d, in, grad, w, center, inv, s, d, accumulate);
    }
    for (int i = (int)threadIdx.x * N; in_shared && i < d; i += step) {
        float sum[N];
        cu_load<float, N>(sum, part + i);
        cu_store(mine + i, sum);
        cu_load<float, N>(sum, part + d + i);
        cu_store(mine + d + i, sum);
    }
}

/* As layernorm_bwd_kernel, with per_row threads a row, which hold it. */
template <class T, int K>
static __global__ void __launch_bounds__(NORM_THREADS, NORM_RESIDENT(K))
    layernorm_bwd_held_kernel(T *dx, float *__restrict__ parts, const T *dy,
                              const T *__restrict__ x, const T *__restrict__ w,
                              const float *__restrict__ mean, const float *__restrict__ rstd,
                              int64_t r, int d, int per_row, bool accumulate)
{
    constexpr int N = per_16_bytes<T>::value;
    CU_SHARED(float, part, [2][NORM_WARPS][2]);
    CU_SHARED(float, shared, [NORM_THREADS / 2 * K * N]);
    int lane = (int)threadIdx.x % per_row;
    int num = NORM_THREADS / per_row;
    float to_w[K][N] = {};
    float to_b[K][N] = {};
    int parity = 0;
    for (int64_t first = (int64_t)blockIdx.x * num; first < r; first += (int64_t)gridDim.x * num) {
        int64_t row = first + (int)threadIdx.x / per_row;
        int end = row < r ? d : 0; /* barriers are for all */
        float center = row < r ? mean[row] : 0;
        float inv = row < r ? rstd[row] : 0;
        float sums[2] = {0, 0}; /* as struct row_sums */
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
                    float n = (vec_float(vx[k], j) - center) * inv;
                    float g = vec_float(vg[k], j);
                    to_w[k][j] += g * n;
                    to_b[k][j] += g;
                    g *= vec_float(vw, j);
                    sums[0] += g;
                    sums[1] += g * n;
                }
            }
        }
        row_sum(sums, part, parity, per_row);
        parity = 1 - parity;
        float pull = sums[0] / (float)d;
        float turn = sums[1] / (float)d;
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
                    float n = (vec_float(vx[k], j) - center) * inv;
                    float g = vec_float(vg[k], j) * vec_float(vw, j);
                    out[j] += inv * (g - pull - n * turn);
                }
                cu_store(dx + row * d + i, out);
            }
        }
    }
    float *mine = parts + (int64_t)blockIdx.x * 2 * d;
    rows_add(mine, shared, to_w, d, per_row);
    rows_add(mine + d, shared, to_b, d, per_row);
}

template <class T>
static cudaError_t forward(cudaStream_t s, T *y, float *mean, float *rstd, const T *x, const T *w,
                           const T *b, int64_t r, int64_t d, double eps)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits = vec_fits(y, d) && vec_fits(x, d) && vec_fits(w, d) && vec_fits(b, d);
    auto kernel = fits ? layernorm_fwd_kernel<T, wide> : layernorm_fwd_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)r), dim3(norm_threads(d, fits ? wide : 1)), 0, s, y, mean,
              rstd, x, w, b, (int)d, (float)eps);
    return cudaGetLastError();
}

/* Parts of dw and db, and how many: rows that are held, and others. */
template <class T>
static int64_t backward_held(cudaStream_t s, T *dx, const T *dy, const T *x, const T *w,
                             const float *mean, const float *rstd, int64_t r, int64_t d,
                             bool accumulate, float *parts)
{
    constexpr int wide = per_16_bytes<T>::value;
    int per_row = norm_per_row(d, wide, 2);
    int times = norm_times(d, wide, per_row);
    auto kernel = times == 1 ? layernorm_bwd_held_kernel<T, 1> : layernorm_bwd_held_kernel<T, 2>;
    int64_t num_parts = norm_blocks(r, per_row, times);
    CU_LAUNCH(kernel, dim3((unsigned)num_parts), dim3(NORM_THREADS), 0, s, dx, parts, dy, x, w,
              mean, rstd, r, (int)d, per_row, accumulate);
    return num_parts;
}

template <class T>
static int64_t backward_rows(cudaStream_t s, T *dx, const T *dy, const T *x, const T *w,
                             const float *mean, const float *rstd, int64_t r, int64_t d,
                             bool accumulate, bool fits, float *parts)
{
    constexpr int wide = per_16_bytes<T>::value;
    auto kernel = fits ? layernorm_bwd_kernel<T, wide> : layernorm_bwd_kernel<T, 1>;
    bool in_shared = 2 * d * (int64_t)sizeof(float) <= NORM_SHARED_BYTES;
    size_t bytes = in_shared ? 2 * (size_t)d * sizeof(float) : 0;
    int64_t num_parts = workspace_norm_parts(r);
    if (cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             NORM_SHARED_BYTES) == cudaSuccess) {
        CU_LAUNCH(kernel, dim3((unsigned)num_parts), dim3(norm_threads(d, fits ? wide : 1)), bytes,
                  s, dx, parts, dy, x, w, mean, rstd, r, (int)d, accumulate, in_shared);
    }
    return num_parts;
}

template <class T>
static cudaError_t backward(cudaStream_t s, T *dx, float *dw, float *db, const T *dy, const T *x,
                            const T *w, const float *mean, const float *rstd, int64_t r, int64_t d,
                            bool accumulate, float *parts)
{
    bool fits = vec_fits(dx, d) && vec_fits(dy, d) && vec_fits(x, d) && vec_fits(w, d);
    int64_t num_parts =
        fits && norm_per_row(d, per_16_bytes<T>::value, 2) > 0
            ? backward_held(s, dx, dy, x, w, mean, rstd, r, d, accumulate, parts)
            : backward_rows(s, dx, dy, x, w, mean, rstd, r, d, accumulate, fits, parts);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) {
        columns_add(s, {dw, db, d}, parts, num_parts, 2 * d);
        e = cudaGetLastError();
    }
    return e;
}

extern "C" cudaError_t cuda_layernorm_fwd(cudaStream_t s, enum dtype t, void *y, float *mean,
                                          float *rstd, const void *x, const void *w, const void *b,
                                          int64_t r, int64_t d, double eps)
{
    if (!norm_sizes_fit(t, r, d)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    if (t == DTYPE_F32) {
        return forward(s, (float *)y, mean, rstd, (const float *)x, (const float *)w,
                       (const float *)b, r, d, eps);
    }
    return forward(s, (__nv_bfloat16 *)y, mean, rstd, (const __nv_bfloat16 *)x,
                   (const __nv_bfloat16 *)w, (const __nv_bfloat16 *)b, r, d, eps);
}

extern "C" cudaError_t cuda_layernorm_bwd(cudaStream_t s, enum dtype t, void *dx, float *dw,
                                          float *db, const void *dy, const void *x, const void *w,
                                          const float *mean, const float *rstd, int64_t r,
                                          int64_t d, bool accumulate, void *workspace)
{
    if (!norm_sizes_fit(t, r, d)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || d == 0) {
        return cudaSuccess;
    }
    float *parts = (float *)workspace;
    if (t == DTYPE_F32) {
        return backward(s, (float *)dx, dw, db, (const float *)dy, (const float *)x,
                        (const float *)w, mean, rstd, r, d, accumulate, parts);
    }
    return backward(s, (__nv_bfloat16 *)dx, dw, db, (const __nv_bfloat16 *)dy,
                    (const __nv_bfloat16 *)x, (const __nv_bfloat16 *)w, mean, rstd, r, d,
                    accumulate, parts);
}
