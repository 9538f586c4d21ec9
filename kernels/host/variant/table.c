#include "kernels/host/variant/variant.h"

const struct loops OP(loops) = {
    .gemm = OP(gemm),
    .embed_fwd = OP(embed_fwd),
    .embed_bwd = OP(embed_bwd),
    .rmsnorm_fwd = OP(rmsnorm_fwd),
    .rmsnorm_bwd = OP(rmsnorm_bwd),
    .rope = OP(rope),
    .attention_fwd = OP(attention_fwd),
    .attention_bwd = OP(attention_bwd),
    .swiglu_fwd = OP(swiglu_fwd),
    .swiglu_bwd = OP(swiglu_bwd),
    .add = OP(add),
    .scale = OP(scale),
    .cross_entropy = OP(cross_entropy),
    .sum_squares = OP(sum_squares),
    .adamw = OP(adamw),
    .sgd = OP(sgd),
    .rmsnorm_bwd_workspace = OP(rmsnorm_bwd_workspace),
    .attention_workspace = OP(attention_workspace),
};
