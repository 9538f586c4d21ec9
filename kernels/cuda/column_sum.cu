/* Sums of columns. Bytes a number: its type's, and the parts: at most 1 MiB a call. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/launch.h"

/* Four for each multiprocessor of an H100; each has one part of its columns in the workspace. */
#define MAX_BLOCKS WORKSPACE_COLUMNS_BLOCKS
/* Fewer rows a block aren't worth its part. */
#define MIN_ROWS (4 * COLUMNS_Y)

template <class T, int N>
static cudaError_t launch(cudaStream_t s, float *db, const T *dy, int64_t r, int64_t n,
                          float *parts)
{
    static_assert(COLUMNS_X * N <= 256, "a part is so long");
    int64_t per_block = COLUMNS_X * N;
    int64_t across = (n + per_block - 1) / per_block;
    int64_t num = MAX_BLOCKS / across;
    num = num < r / MIN_ROWS ? num : r / MIN_ROWS;
    bool alone = num <= 1;
    struct columns_out o = {alone ? db : parts, NULL, n};
    CU_LAUNCH((columns_kernel<T, N>), dim3((unsigned)across, (unsigned)(alone ? 1 : num)),
              dim3(COLUMNS_X, COLUMNS_Y), 0, s, o, dy, r, n, alone);
    if (!alone) {
        o.out = db;
        columns_add(s, o, parts, num, n);
    }
    return cudaGetLastError();
}

template <class T>
static cudaError_t column_sum(cudaStream_t s, float *db, const T *dy, int64_t r, int64_t n,
                              float *parts)
{
    constexpr int wide = per_16_bytes<T>::value;
    return vec_fits(dy, n) ? launch<T, wide>(s, db, dy, r, n, parts)
                           : launch<T, 1>(s, db, dy, r, n, parts);
}

extern "C" cudaError_t cuda_column_sum(cudaStream_t s, enum dtype t, float *db, const void *dy,
                                       int64_t r, int64_t n, void *workspace)
{
    if (r < 0 || n < 0 || n > INT32_MAX || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || n == 0) {
        return cudaSuccess;
    }
    float *parts = (float *)workspace;
    return t == DTYPE_F32 ? column_sum(s, db, (const float *)dy, r, n, parts)
                          : column_sum(s, db, (const __nv_bfloat16 *)dy, r, n, parts);
}
