/* One run of each operation on a side, from a shape to outputs. */
#ifndef TANDEM_TESTS_PARITY_OPS_RUN_H
#define TANDEM_TESTS_PARITY_OPS_RUN_H

#include "tests/parity/ops_case.h"

void run_gemm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_embed(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_rmsnorm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_rope(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_attention(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_swiglu(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_elementwise(const struct side *x, enum dtype t, const struct shape *s,
                     struct outputs *out);
void run_cross_entropy(const struct side *x, enum dtype t, const struct shape *s,
                       struct outputs *out);
void run_layernorm(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_gelu(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_bias(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_vocabulary_parts(const struct side *x, enum dtype t, const struct shape *s,
                          struct outputs *out);
void run_cast(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_clip(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_sums(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_adamw(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);
void run_sgd(const struct side *x, enum dtype t, const struct shape *s, struct outputs *out);

/* Every 7th target is ignored. */
int32_t *draw_targets(const struct side *x, const struct shape *s);
/* Documents of uneven length, also within a tile. */
int32_t *draw_segments(const struct side *x, const struct shape *s);

#endif
