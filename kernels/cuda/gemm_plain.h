/* A product of any shape, layout and alignment, slow: where cublasLt has no algorithm, or where
 * there is nothing to sum (k = 0). */
#ifndef TANDEM_KERNELS_CUDA_GEMM_PLAIN_H
#define TANDEM_KERNELS_CUDA_GEMM_PLAIN_H

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C = alpha * op(A) * op(B) + beta * C0; no bias, no gelu. m, n > 0. t: f32 or bf16; c_type: t or
 * f32. */
cudaError_t cuda_gemm_plain(cudaStream_t s, enum dtype t, const struct gemm_args *a);

#ifdef __cplusplus
}
#endif
#endif
