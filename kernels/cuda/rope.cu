/* Rotary positions, in place. Bytes a number: 2 times its type's; the tables are read once a row
 * from memory (8 bytes a pair), and from L1 for the heads behind the first.
 * Source: Su et al. 2021, in Hugging Face's half split. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vec.cuh"

#define NUM_THREADS 256

struct rope_shape {
    int64_t r, seq_len;
    int heads, half;
    float sign;
};

/* A block has blockDim.y rows; a thread N pairs of a head at a time. */
template <class T, int N>
static __global__ void __launch_bounds__(NUM_THREADS)
    rope_kernel(T *x, const float *__restrict__ cos, const float *__restrict__ sin,
                const int32_t *__restrict__ positions, struct rope_shape a)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    unsigned per_head = (unsigned)(a.half / N);
    unsigned num = row < a.r ? per_head * (unsigned)a.heads : 0;
    int64_t at = 0;
    if (row < a.r) {
        at = (positions != NULL ? positions[row] : row % a.seq_len) * a.half;
    }
    for (unsigned i = threadIdx.x; i < num; i += blockDim.x) {
        unsigned head = i / per_head;
        int pair = (int)(i - head * per_head) * N;
        T *low = x + (row * a.heads + head) * 2 * a.half + pair;
        float x0[N], x1[N], c[N], s[N];
        cu_load<T, N>(x0, low);
        cu_load<T, N>(x1, low + a.half);
        cu_load<float, N>(c, cos + at + pair);
        cu_load<float, N>(s, sin + at + pair);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float turn = a.sign * s[j];
            float was = x0[j];
            x0[j] = was * c[j] - x1[j] * turn;
            x1[j] = x1[j] * c[j] + was * turn;
        }
        cu_store(low, x0);
        cu_store(low + a.half, x1);
    }
}

template <class T>
static cudaError_t rope(cudaStream_t s, T *x, const float *cos, const float *sin,
                        const int32_t *positions, struct rope_shape a)
{
    constexpr int wide = per_16_bytes<T>::value;
    bool fits =
        vec_fits(x, a.half) && vec_aligned<float, wide>(cos) && vec_aligned<float, wide>(sin);
    int64_t units = (int64_t)a.heads * a.half / (fits ? wide : 1);
    int64_t across = (units + CU_WARP - 1) / CU_WARP * CU_WARP;
    across = across < NUM_THREADS ? across : NUM_THREADS;
    int64_t rows = NUM_THREADS / across;
    auto kernel = fits ? rope_kernel<T, wide> : rope_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)((a.r + rows - 1) / rows)),
              dim3((unsigned)across, (unsigned)rows), 0, s, x, cos, sin, positions, a);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_rope(cudaStream_t s, enum dtype t, void *x, const float *cos,
                                 const float *sin, const int32_t *positions, int64_t r,
                                 int64_t seq_len, int64_t heads, int64_t e, bool backward)
{
    bool fits = r >= 0 && r <= INT32_MAX && heads >= 0 && e >= 0 && heads <= INT32_MAX &&
                e <= INT32_MAX && heads * e <= INT32_MAX;
    if (!fits || (t != DTYPE_F32 && t != DTYPE_BF16)) {
        return cudaErrorInvalidValue;
    }
    if (r == 0 || heads == 0 || e < 2) {
        return cudaSuccess;
    }
    if (e % 2 != 0 || (positions == NULL && seq_len < 1)) {
        return cudaErrorInvalidValue;
    }
    struct rope_shape a = {r, seq_len, (int)heads, (int)(e / 2), backward ? -1.0f : 1.0f};
    return t == DTYPE_F32 ? rope(s, (float *)x, cos, sin, positions, a)
                          : rope(s, (__nv_bfloat16 *)x, cos, sin, positions, a);
}
