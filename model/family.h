/* What a model is, as data: for each family its parameter table (Hugging Face names, shapes, how
 * each lies over the tensor axis) and its FLOPs. Layers, plan and checkpoints read it; no other
 * place knows a tensor's name.
 *
 * Units, forward numbering: 0 embed, 1..L blocks, L+1 final norm + head (+ loss). */
#ifndef TANDEM_MODEL_FAMILY_H
#define TANDEM_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "proto/names.h"

/* What the forward pass of a block keeps for its backward pass. */
struct family_saved {
    const char *name;
    int64_t width;   /* elements a token */
    int64_t per_key; /* more of them for each position that the token attends to */
    bool stat;       /* a statistic of a row, not an activation */
    bool mask;       /* one byte an element */
    bool cheap;      /* selective recomputation makes it again instead of keeping it */
    int64_t parts;   /* split over the tensor axis into so many parts (heads) at most; 0: it lies
                      * whole on each tensor rank, split with sequence parallel alone */
};
#define FAMILY_SAVED_MAX 24

/* How a block computes its attention. Of what is published for the second kind the list says it
 * all; the runtime does the first. */
enum family_attention {
    FAMILY_FUSED,               /* log-sum-exps in place of probabilities; no masks */
    FAMILY_UNFUSED_WITH_DROPOUT /* GPT-2 as Megatron had it; the others are always fused */
};

struct family {
    const char *model_type; /* "llama" */
    bool plan_only;         /* can be planned and not trained yet */
    /* Fills the symbolic parameter table of config, in arena memory: embed, one block, head, in
     * forward order. A tied head has no line of its own: the embedding's says tied. */
    int (*params)(const ModelConfig *config, struct arena *arena, ParamDef ***defs, size_t *num,
                  struct error *err);
    /* Parameters that take part in matrix products: no input embedding, the head once, of experts
     * those that one token uses. */
    int64_t (*matmul_params)(const ModelConfig *config);
    /* The saved tensors of one block; returns their number. */
    size_t (*saved)(const ModelConfig *config, enum family_attention attention,
                    struct family_saved saved[FAMILY_SAVED_MAX]);
};

/* NULL: not known. */
const struct family *family_find(const char *model_type);

/* Number of units: L + 2. */
int32_t family_num_units(const ModelConfig *config);

/* Real name of a def in a layer: {layer} replaced. False if it doesn't fit. */
bool family_param_name(const ParamDef *def, int64_t layer, char *out, size_t size);

/* The same, and {expert} replaced. */
bool family_expert_name(const ParamDef *def, int64_t layer, int64_t expert, char *out, size_t size);

/* Fails where the family can be planned and not trained yet; field: what asks for it. */
int family_check_built(const char *field, const ModelConfig *config, struct error *err);

/* Elements of a def; of one expert. */
int64_t family_param_numel(const ParamDef *def);

/* Parameters of the whole model, tied ones once. */
int64_t family_num_params(const ModelConfig *config);
/* Those that one token uses: of a layer's experts num_experts_per_tok. */
int64_t family_num_active_params(const ModelConfig *config);

/* Forward + backward FLOPs of one token at a mean attended length (TRAINING: 6 N' + 6 L H
 * (d_qk + d_v) T_mean; causal over seq_len: T_mean = (seq_len + 1) / 2). */
double family_flops_per_token(const ModelConfig *config, double mean_attended);

/* Elements that one block keeps for its backward pass, a token; without what grows with the number
 * of positions. */
int64_t family_saved_per_token(const ModelConfig *config);

#endif
