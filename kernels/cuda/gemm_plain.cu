/* A tile of C a block, a number of it a thread; A and B come through shared memory, 16 of k at a
 * time. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/gemm_plain.h"
#include "kernels/cuda/vec.cuh"

#define TILE 16
/* Further rows of tiles are taken in turns. */
#define MAX_GRID_Y 65535

/* op(X)[row][col]: rows and columns are so far apart. */
template <class T> struct operand {
    const T *at;
    int64_t row, col;
};

template <class T, class C> struct product {
    int m, n, k;
    struct operand<T> a, b;
    C *c;
    const C *c0;
    int64_t ldc;
    float alpha, beta;
};

template <class T>
static __device__ __forceinline__ float number(struct operand<T> x, int row, int col, int rows,
                                               int cols)
{
    return row < rows && col < cols ? cu_float(x.at[row * x.row + col * x.col]) : 0;
}

template <class T, class C>
static __global__ void __launch_bounds__(TILE *TILE) gemm_plain_kernel(struct product<T, C> p)
{
    CU_SHARED(float, a, [TILE][TILE + 1]);
    CU_SHARED(float, b, [TILE][TILE + 1]);
    int i = (int)threadIdx.x / TILE, j = (int)threadIdx.x % TILE;
    int col = (int)blockIdx.x * TILE + j;
    for (int64_t first = (int64_t)blockIdx.y * TILE; first < p.m;
         first += (int64_t)gridDim.y * TILE) {
        int row = (int)(first + i < p.m ? first + i : p.m);
        float sum = 0;
        for (int k = 0; k < p.k; k += TILE) {
            a[i][j] = number(p.a, row, k + j, p.m, p.k);
            b[i][j] = number(p.b, k + i, col, p.k, p.n);
            __syncthreads();
#pragma unroll
            for (int l = 0; l < TILE; l++) {
                sum += a[i][l] * b[l][j];
            }
            __syncthreads();
        }
        if (row < p.m && col < p.n) {
            int64_t at = row * p.ldc + col;
            float v = p.alpha * sum;
            cu_set(&p.c[at], p.beta == 0 ? v : v + p.beta * cu_float(p.c0[at]));
        }
    }
}

template <class T, class C> static cudaError_t launch(cudaStream_t s, const struct gemm_args *a)
{
    struct product<T, C> p = {
        (int)a->m, (int)a->n, (int)a->k,
            {(const T *)a->a, a->trans_a ? 1 : a->lda, a->trans_a ? a->lda : 1},
            {(const T *)a->b, a->trans_b ? 1 : a->ldb, a->trans_b ? a->ldb : 1}, (C *)a->c,
            (const C *)(a->c0 ? a->c0 : a->c), a->ldc, (float)a->alpha, (float)a->beta
    };
    int64_t rows = (a->m + TILE - 1) / TILE;
    dim3 grid((unsigned)((a->n + TILE - 1) / TILE),
              (unsigned)(rows < MAX_GRID_Y ? rows : MAX_GRID_Y));
    CU_LAUNCH((gemm_plain_kernel<T, C>), grid, dim3(TILE * TILE), 0, s, p);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_gemm_plain(cudaStream_t s, enum dtype t, const struct gemm_args *a)
{
    bool is_bf16 = t == DTYPE_BF16;
    if ((!is_bf16 && t != DTYPE_F32) || (a->c_type != t && a->c_type != DTYPE_F32)) {
        return cudaErrorInvalidValue;
    }
    if (!is_bf16) {
        return launch<float, float>(s, a);
    }
    return a->c_type == DTYPE_F32 ? launch<__nv_bfloat16, float>(s, a)
                                  : launch<__nv_bfloat16, __nv_bfloat16>(s, a);
}
