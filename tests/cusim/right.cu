#include "tests/cusim/right.h"

#include "kernels/cuda/cu.h"

/* ---- matrix product: a warp has 16 x 16 of C, two steps of 16 are under way ---- */

#define TILE 16
#define PITCH (TILE + 8)

static __device__ void bring_tile(uint16_t *tile, const uint16_t *x, int first, int num_rows,
                                  int k0, int ld)
{
    int lane = (int)threadIdx.x;
    int row = lane / 2;
    int column = k0 + lane % 2 * 8;
    bool is_there = first + row < num_rows && column < ld;
    const uint16_t *from = is_there ? x + (int64_t)(first + row) * ld + column : x;
    cu_cp_async16(tile + row * PITCH + lane % 2 * 8, from, is_there);
}

static __global__ void matmul_kernel(float *c, const uint16_t *a, const uint16_t *b, int m, int n,
                                     int k, int ld)
{
    CU_SHARED(uint16_t, as, [2][TILE * PITCH]);
    CU_SHARED(uint16_t, bs, [2][TILE * PITCH]);
    int lane = (int)threadIdx.x;
    int m0 = (int)blockIdx.y * TILE;
    int n0 = (int)blockIdx.x * TILE;
    int num_steps = (k + TILE - 1) / TILE;
    float sums[2][4] = {};
    bring_tile(as[0], a, m0, m, 0, ld);
    bring_tile(bs[0], b, n0, n, 0, ld);
    cu_cp_async_commit();
    for (int step = 0; step < num_steps; step++) {
        int now = step % 2;
        if (step + 1 < num_steps) {
            bring_tile(as[1 - now], a, m0, m, (step + 1) * TILE, ld);
            bring_tile(bs[1 - now], b, n0, n, (step + 1) * TILE, ld);
        }
        cu_cp_async_commit();
        cu_cp_async_wait<1>();
        __syncwarp();
        uint32_t x[4], y[4];
        cu_ldmatrix_x4(x, &as[now][lane % 16 * PITCH + lane / 16 * 8]);
        cu_ldmatrix_x4(y, &bs[now][(lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8]);
        cu_mma_16816_bf16(sums[0], x, y);
        cu_mma_16816_bf16(sums[1], x, y + 2);
        __syncwarp();
    }
    cu_cp_async_wait<0>();
    for (int i = 0; i < 8; i++) {
        int row = m0 + lane / 4 + (i % 4 >= 2 ? 8 : 0);
        int column = n0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row < m && column < n) {
            c[(int64_t)row * n + column] = sums[i / 4][i % 4];
        }
    }
}

cudaError_t right_matmul(cudaStream_t s, float *c, const uint16_t *a, const uint16_t *b, int m,
                         int n, int k, int ld)
{
    dim3 grid((unsigned)(n + TILE - 1) / TILE, (unsigned)(m + TILE - 1) / TILE);
    CU_LAUNCH(matmul_kernel, grid, dim3(32), 0, s, c, a, b, m, n, k, ld);
    return cudaGetLastError();
}

/* ---- shared memory ---- */

static __global__ void transpose_kernel(float *out, const float *x, int m, int n)
{
    CU_SHARED(float, tile, [32][33]);
    int column = (int)(blockIdx.x * 32 + threadIdx.x);
    for (int i = (int)threadIdx.y; i < 32; i += (int)blockDim.y) {
        int row = (int)blockIdx.y * 32 + i;
        if (row < m && column < n) {
            tile[i][threadIdx.x] = x[(int64_t)row * n + column];
        }
    }
    __syncthreads();
    int row = (int)(blockIdx.y * 32 + threadIdx.x);
    for (int i = (int)threadIdx.y; i < 32; i += (int)blockDim.y) {
        int to = (int)blockIdx.x * 32 + i;
        if (to < n && row < m) {
            out[(int64_t)to * m + row] = tile[threadIdx.x][i];
        }
    }
}

cudaError_t right_transpose(cudaStream_t s, float *out, const float *x, int m, int n)
{
    dim3 grid((unsigned)(n + 31) / 32, (unsigned)(m + 31) / 32);
    CU_LAUNCH(transpose_kernel, grid, dim3(32, 4), 0, s, out, x, m, n);
    return cudaGetLastError();
}

static __global__ void histogram_kernel(int *counts, const unsigned *x, int n, int num_bins)
{
    CU_DYN_SHARED(int, mine);
    for (int i = (int)threadIdx.x; i < num_bins; i += (int)blockDim.x) {
        mine[i] = 0;
    }
    __syncthreads();
    int step = (int)(gridDim.x * blockDim.x);
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) {
        atomicAdd(&mine[x[i] % (unsigned)num_bins], 1);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < num_bins; i += (int)blockDim.x) {
        atomicAdd(&counts[i], mine[i]);
    }
}

cudaError_t right_histogram(cudaStream_t s, int *counts, const unsigned *x, int n, int num_bins)
{
    size_t bytes = (size_t)num_bins * sizeof(int);
    CU_LAUNCH(histogram_kernel, dim3(3), dim3(64), bytes, s, counts, x, n, num_bins);
    return cudaGetLastError();
}

/* ---- warps ---- */

static __global__ void votes_kernel(int *out, int *above, const float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int lane = (int)threadIdx.x % 32;
    unsigned votes = __ballot_sync(CU_ALL_LANES, i < n && x[i] > 0);
    if (i < n) {
        above[i] = __popc(votes & ((1u << lane) - 1));
    }
    if (lane == 0 && i < n) {
        out[i / 32] = __popc(votes);
    }
}

cudaError_t right_votes(cudaStream_t s, int *out, int *above, const float *x, int n)
{
    CU_LAUNCH(votes_kernel, dim3((unsigned)(n + 95) / 96), dim3(96), 0, s, out, above, x, n);
    return cudaGetLastError();
}

static __global__ void half_warps_kernel(float *out, const float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int lane = (int)threadIdx.x % 32;
    float sum = i < n ? x[i] : 0;
    if (lane < 16) {
        for (unsigned by = 4; by > 0; by /= 2) {
            sum += __shfl_down_sync(0x0000ffffu, sum, by, 8);
        }
        sum = __shfl_sync(0x0000ffffu, sum, 0, 8);
    } else {
        for (int bit = 1; bit < 8; bit *= 2) {
            sum += __shfl_xor_sync(0xffff0000u, sum, bit, 8);
        }
    }
    __syncwarp();
    if (i < n) {
        out[i] = sum;
    }
}

cudaError_t right_half_warps(cudaStream_t s, float *out, const float *x, int n)
{
    CU_LAUNCH(half_warps_kernel, dim3((unsigned)(n + 63) / 64), dim3(64), 0, s, out, x, n);
    return cudaGetLastError();
}

static __global__ void block_votes_kernel(int *out, const int *x)
{
    int mine = x[threadIdx.x];
    int count = __syncthreads_count(mine);
    int any = __syncthreads_or(mine);
    int all = __syncthreads_and(mine);
    if (threadIdx.x == 95) {
        out[0] = count;
        out[1] = any;
        out[2] = all;
    }
}

cudaError_t right_block_votes(cudaStream_t s, int *out, const int *x)
{
    CU_LAUNCH(block_votes_kernel, dim3(1), dim3(96), 0, s, out, x);
    return cudaGetLastError();
}
