/* The reference cases under tests/golden: their sizes and their 20-step curves. */
#ifndef TANDEM_TESTS_PARALLEL_GOLDEN_H
#define TANDEM_TESTS_PARALLEL_GOLDEN_H

#include <stdint.h>

#define GOLDEN_STEPS 20

struct golden {
    const char *name;
    int64_t batch, seq_len; /* of train.bin */
};

extern const struct golden golden_tiny, golden_tied, golden_qwen2, golden_qwen3, golden_gpt2;
extern const struct golden golden_deep, golden_deep_tied, golden_gpt2_deep;
/* Their weights are golden_tiny's and golden_gpt2's. */
extern const struct golden golden_packed, golden_packed_gpt2;

/* Path of a file of the case, in a buffer that the next call of this thread writes again. */
const char *golden_path(const struct golden *g, const char *file);

/* One curve of train.json: "loss_f64", "grad_norm_f64", "lr". */
void golden_curve(const struct golden *g, const char *key, double out[GOLDEN_STEPS]);

#endif
