/* The decoder that most families share: RMS norms, rotary attention with grouped heads, a gated MLP
 * or a layer of gated experts. What a family adds stands in its shape. Private to model/family_*.
 *
 * Touvron et al. 2023, section 2.2; grouped heads as in Ainslie et al. 2023; experts as in Jiang et
 * al. 2024. Names and shapes are Hugging Face's: a weight is [out, in]. */
#ifndef TANDEM_MODEL_FAMILY_DECODER_H
#define TANDEM_MODEL_FAMILY_DECODER_H

#include "model/family.h"

struct decoder_shape {
    bool qkv_bias; /* q, k and v projections have a bias */
    bool qk_norm;  /* each head of q and k is normed before the rotation */
    /* Experts in place of the MLP: the router's name, then gate, up and down of one expert, below
     * the block; NULL: an MLP. */
    const char *router, *expert_gate, *expert_up, *expert_down;
};

int decoder_params(const struct decoder_shape *s, const ModelConfig *c, struct arena *arena,
                   ParamDef ***defs, size_t *num, struct error *err);
int64_t decoder_matmul_params(const struct decoder_shape *s, const ModelConfig *c);
size_t decoder_saved(const struct decoder_shape *s, const ModelConfig *c,
                     struct family_saved saved[FAMILY_SAVED_MAX]);

/* The three functions of a family and its entry. */
#define DECODER_FAMILY(word, can_train, ...)                                                       \
    static const struct decoder_shape word##_shape = {__VA_ARGS__};                                \
    static int word##_params(const ModelConfig *c, struct arena *arena, ParamDef ***defs,          \
                             size_t *num, struct error *err)                                       \
    {                                                                                              \
        return decoder_params(&word##_shape, c, arena, defs, num, err);                            \
    }                                                                                              \
    static int64_t word##_matmul_params(const ModelConfig *c)                                      \
    {                                                                                              \
        return decoder_matmul_params(&word##_shape, c);                                            \
    }                                                                                              \
    static size_t word##_saved(const ModelConfig *c, enum family_attention attention,              \
                               struct family_saved saved[FAMILY_SAVED_MAX])                        \
    {                                                                                              \
        (void)attention;                                                                           \
        return decoder_saved(&word##_shape, c, saved);                                             \
    }                                                                                              \
    const struct family family_##word = {                                                          \
        .model_type = #word,                                                                       \
        .plan_only = !(can_train),                                                                 \
        .params = word##_params,                                                                   \
        .matmul_params = word##_matmul_params,                                                     \
        .saved = word##_saved,                                                                     \
    }

#endif
