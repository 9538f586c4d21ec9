/* Kernels that are right, and use all that the simulator has: launchers in C. */
#ifndef TANDEM_TESTS_CUSIM_RIGHT_H
#define TANDEM_TESTS_CUSIM_RIGHT_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c [m,n] f32 = a [m,k] * b [n,k]^T, bf16 given as bits; rows of a and b are ld numbers apart, ld a
 * multiple of 8, with zeros behind k. By cp.async, ldmatrix and mma. */
cudaError_t right_matmul(cudaStream_t s, float *c, const uint16_t *a, const uint16_t *b, int m,
                         int n, int k, int ld);
/* out [n,m] = x [m,n] transposed, by way of shared memory. */
cudaError_t right_transpose(cudaStream_t s, float *out, const float *x, int m, int n);
/* counts [num_bins] += how often each x[i] % num_bins comes, by atomics in shared and device
 * memory. */
cudaError_t right_histogram(cudaStream_t s, int *counts, const unsigned *x, int n, int num_bins);
/* out [ceil(n/32)]: of each 32 numbers, how many are positive; above [n]: of each number, how many
 * positive ones stand before it in its 32. */
cudaError_t right_votes(cudaStream_t s, int *out, int *above, const float *x, int n);
/* out [n]: sums over groups of 8 lanes, going down in one half of a warp and up in the other, under
 * masks of half a warp each. */
cudaError_t right_half_warps(cudaStream_t s, float *out, const float *x, int n);
/* out [3] of a block of 96: how many, any, all of x [96] are not 0. */
cudaError_t right_block_votes(cudaStream_t s, int *out, const int *x);

#ifdef __cplusplus
}
#endif
#endif
