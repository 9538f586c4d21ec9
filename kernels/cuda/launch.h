/* The launchers of our own kernels: C, asynchronous in the stream, with the meaning of the
 * operation of the same name in kernels/kernels.h, of which this says only what differs. Pointers
 * are device memory, aligned to their numbers and no more (16 bytes make it fast), but what is said
 * to be host memory, which is read before the call returns. What a launch returns is that it was
 * taken; what runs afterwards shows in the stream.
 *
 * t: f32 or bf16. Statistics, tables and gradients of parameters are f32 for both. Workspaces are
 * aligned to 64 bytes, as arenas are, their sizes in kernels/workspace.h. */
#ifndef TANDEM_KERNELS_CUDA_LAUNCH_H
#define TANDEM_KERNELS_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"
#include "kernels/workspace.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cuda_embed_fwd(cudaStream_t s, enum dtype t, void *y, const void *w, const int32_t *ids,
                           int64_t first, int64_t r, int64_t v, int64_t d);
cudaError_t cuda_embed_bwd(cudaStream_t s, enum dtype t, float *dw, const void *dy,
                           const int32_t *ids, int64_t first, int64_t r, int64_t v, int64_t d,
                           void *workspace);

cudaError_t cuda_rmsnorm_fwd(cudaStream_t s, enum dtype t, void *y, float *rstd, const void *x,
                             const void *w, int64_t r, int64_t d, double eps);
cudaError_t cuda_rmsnorm_bwd(cudaStream_t s, enum dtype t, void *dx, float *dw, const void *dy,
                             const void *x, const void *w, const float *rstd, int64_t r, int64_t d,
                             bool accumulate, void *workspace);
cudaError_t cuda_layernorm_fwd(cudaStream_t s, enum dtype t, void *y, float *mean, float *rstd,
                               const void *x, const void *w, const void *b, int64_t r, int64_t d,
                               double eps);
cudaError_t cuda_layernorm_bwd(cudaStream_t s, enum dtype t, void *dx, float *dw, float *db,
                               const void *dy, const void *x, const void *w, const float *mean,
                               const float *rstd, int64_t r, int64_t d, bool accumulate,
                               void *workspace);

cudaError_t cuda_rope(cudaStream_t s, enum dtype t, void *x, const float *cos, const float *sin,
                      const int32_t *positions, int64_t r, int64_t seq_len, int64_t heads,
                      int64_t e, bool backward);

/* E from 1 to 256. workspace_cuda_attention() bytes; the forward pass needs them with segments
 * only. Fast where E is a multiple of 8 from 32 to 128, the type bf16, and everything lies at
 * multiples of 16 bytes. The same bits for the same numbers, always. */
cudaError_t cuda_attention_fwd(cudaStream_t s, enum dtype t, const struct attention_args *a);
cudaError_t cuda_attention_bwd(cudaStream_t s, enum dtype t, const struct attention_args *a);

cudaError_t cuda_swiglu_fwd(cudaStream_t s, enum dtype t, void *y, const void *gate, const void *up,
                            int64_t n);
cudaError_t cuda_swiglu_bwd(cudaStream_t s, enum dtype t, void *dgate, void *dup, const void *dy,
                            const void *gate, const void *up, int64_t n);
cudaError_t cuda_gelu_fwd(cudaStream_t s, enum dtype t, void *y, const void *x, int64_t n);
cudaError_t cuda_gelu_bwd(cudaStream_t s, enum dtype t, void *dx, const void *dy, const void *x,
                          int64_t n);

/* What a product leaves to do where it could not be fused: C [m,n] of type c_type, rows ldc apart,
 * in place, one pass over it:
 *   C += beta * c0 + bias;  then gelu = gelu_fwd(C), or C *= gelu'(gelu_of).
 * Each of c0 (where beta isn't 0), bias [n] (of type t), gelu and gelu_of may be NULL; they lie as
 * C does. gelu is computed of C before it is rounded to bf16, and so is the product. */
struct cuda_epilogue_args {
    int64_t m, n, ldc;
    void *c;
    enum dtype c_type;
    double beta;
    const void *c0, *bias;
    void *gelu;
    const void *gelu_of;
};
cudaError_t cuda_epilogue(cudaStream_t s, enum dtype t, const struct cuda_epilogue_args *a);

cudaError_t cuda_add_bias(cudaStream_t s, enum dtype t, void *y, const void *b, int64_t r,
                          int64_t n);
/* workspace: WORKSPACE_CUDA_COLUMN_SUM bytes, that nothing uses beside this stream. */
cudaError_t cuda_column_sum(cudaStream_t s, enum dtype t, float *db, const void *dy, int64_t r,
                            int64_t n, void *workspace);

/* These two take f64, too. */
cudaError_t cuda_add(cudaStream_t s, enum dtype t, void *y, const void *a, const void *b,
                     int64_t n);
cudaError_t cuda_scale(cudaStream_t s, enum dtype t, void *x, double factor, int64_t n);

cudaError_t cuda_cross_entropy(cudaStream_t s, enum dtype t, double *nll, void *dlogits,
                               const void *logits, const int32_t *targets, double dloss, int64_t r,
                               int64_t v, int64_t ld);
cudaError_t cuda_ce_max(cudaStream_t s, enum dtype t, double *max, const struct logits_part *p);
cudaError_t cuda_ce_sum(cudaStream_t s, enum dtype t, double *sums, const double *max,
                        const struct logits_part *p);
cudaError_t cuda_ce_finish(cudaStream_t s, enum dtype t, double *nll, void *dlogits,
                           const double *max, const double *sums, double dloss,
                           const struct logits_part *p);

cudaError_t cuda_sum_squares(cudaStream_t s, enum dtype t, double *out, const void *x,
                             const struct span *spans, int32_t num_spans, void *workspace);
cudaError_t cuda_sum_double(cudaStream_t s, double *out, const double *x, int64_t n);
cudaError_t cuda_clip(cudaStream_t s, double *norm, double *scale, const double *squares,
                      double max_norm);

/* w, m, v and g are f32. */
cudaError_t cuda_adamw(cudaStream_t s, const struct step_args *a);
cudaError_t cuda_sgd(cudaStream_t s, const struct step_args *a);

/* The pairs that host backends know. */
cudaError_t cuda_cast(cudaStream_t s, void *dst, enum dtype dst_t, const void *src,
                      enum dtype src_t, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
