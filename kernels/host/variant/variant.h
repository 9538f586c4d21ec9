/* The functions of one variant of the loops: what a folder of sources that is compiled once a type
 * (and instruction set) must define. OP() puts the variant's name behind each. */
#ifndef TANDEM_KERNELS_HOST_VARIANT_H
#define TANDEM_KERNELS_HOST_VARIANT_H

#include "kernels/host/loops.h"
#include "kernels/host/variant/real.h"

void OP(gemm)(struct pool *pool, const void *args);
void OP(embed_fwd)(struct pool *pool, const void *args);
void OP(embed_bwd)(struct pool *pool, const void *args);
void OP(rmsnorm_fwd)(struct pool *pool, const void *args);
void OP(rmsnorm_bwd)(struct pool *pool, const void *args);
size_t OP(rmsnorm_bwd_workspace)(int64_t r, int64_t d);
void OP(layernorm_fwd)(struct pool *pool, const void *args);
void OP(layernorm_bwd)(struct pool *pool, const void *args);
size_t OP(layernorm_bwd_workspace)(int64_t r, int64_t d);
void OP(rope)(struct pool *pool, const void *args);
void OP(attention_fwd)(struct pool *pool, const void *args);
void OP(attention_bwd)(struct pool *pool, const void *args);
size_t OP(attention_workspace)(int num_threads, int64_t b, int64_t seq_len, int64_t h, int64_t kv,
                               int64_t e);
void OP(swiglu_fwd)(struct pool *pool, const void *args);
void OP(swiglu_bwd)(struct pool *pool, const void *args);
void OP(gelu_fwd)(struct pool *pool, const void *args);
void OP(gelu_bwd)(struct pool *pool, const void *args);
void OP(add_bias)(struct pool *pool, const void *args);
void OP(column_sum)(struct pool *pool, const void *args);
void OP(add)(struct pool *pool, const void *args);
void OP(scale)(struct pool *pool, const void *args);
void OP(cross_entropy)(struct pool *pool, const void *args);
void OP(ce_max)(struct pool *pool, const void *args);
void OP(ce_sum)(struct pool *pool, const void *args);
void OP(ce_finish)(struct pool *pool, const void *args);
void OP(sum_squares)(struct pool *pool, const void *args);
void OP(adamw)(struct pool *pool, const void *args);
void OP(sgd)(struct pool *pool, const void *args);

extern const struct loops OP(loops);

#endif
