/* Attention by cuDNN, the fast path where it answers: bf16, heads of a multiple of 8 up to 128, no
 * segments. The library (libcudnn.so.9) is looked for when the process first wants it; where it
 * isn't, or refuses a shape, our own kernels do the work, and the log says so once.
 *
 * TANDEM_CUDA_ATTENTION: own - never cuDNN; auto (and unset) - its forward pass alone, because its
 * backward pass adds with atomics: the same numbers wouldn't give the same bits; cudnn - both.
 * TANDEM_CUDNN names another library.
 *
 * Plans are made, and their workspace is allocated, by cudnn_prepare, that is where a model asks
 * for attention's workspace when it is opened. Nothing is allocated later; so a shape that wasn't
 * prepared is for our own kernels. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_H
#define TANDEM_KERNELS_CUDA_CUDNN_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

/* Bytes that a plan may take beyond attention's workspace; one that wants more isn't used. */
#define CUDNN_WORKSPACE_MAX ((int64_t)1 << 30)

/* Of one device. */
struct cudnn;

/* NULL where it isn't to be used. */
struct cudnn *cudnn_open(void);
void cudnn_close(struct cudnn *c);

/* Of a problem only b, t, h, kv and e are looked at. */
void cudnn_prepare(struct cudnn *c, enum dtype t, const struct attention_args *a);
/* true: it is in the stream. false: it is left to our own kernels. */
bool cudnn_attention(struct cudnn *c, cudaStream_t s, enum dtype t, const struct attention_args *a,
                     bool backward);

#endif
