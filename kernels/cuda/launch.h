/* The launchers of our own kernels: C, asynchronous in the stream, with the meaning of the
 * operation of the same name in kernels/kernels.h. Pointers are device memory. What a launch
 * returns is that it was taken; what runs afterwards shows in the stream.
 *
 * Parameters of norms have the activations' type; statistics and gradients of parameters are f32.
 */
#ifndef TANDEM_KERNELS_CUDA_LAUNCH_H
#define TANDEM_KERNELS_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "kernels/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* t: f32 or bf16. x, y [R,D]; w [D]; rstd [R] f32. y may alias x. */
cudaError_t cuda_rmsnorm_fwd(cudaStream_t s, enum dtype t, void *y, float *rstd, const void *x,
                             const void *w, int64_t r, int64_t d, double eps);
/* dx = (or += where accumulate; may alias dy where not); dw [D] f32 +=. */
cudaError_t cuda_rmsnorm_bwd(cudaStream_t s, enum dtype t, void *dx, float *dw, const void *dy,
                             const void *x, const void *w, const float *rstd, int64_t r, int64_t d,
                             bool accumulate, void *workspace);
size_t cuda_rmsnorm_bwd_workspace(int64_t r, int64_t d);

/* *out (double) = the sum of x^2 over x[n], in double, always in the same order; x may lie at any
 * multiple of its numbers' size, and the bits don't depend on where. workspace:
 * CUDA_SUM_SQUARES_WORKSPACE bytes. */
#define CUDA_SUM_SQUARES_PARTS 528
#define CUDA_SUM_SQUARES_WORKSPACE (CUDA_SUM_SQUARES_PARTS * sizeof(double))
cudaError_t cuda_sum_squares(cudaStream_t s, enum dtype t, double *out, const void *x, int64_t n,
                             void *workspace);

/* As struct adamw_args says, with f32 numbers. */
struct cuda_adamw_args {
    int64_t n;
    float *w, *m, *v;
    const float *g;
    double lr, beta1, beta2, eps, decay, bias1, bias2, grad_scale;
};
cudaError_t cuda_adamw(cudaStream_t s, const struct cuda_adamw_args *a);

#ifdef __cplusplus
}
#endif
#endif
