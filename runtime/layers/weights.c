/* Which parameter of the table is which weight of a Llama block. */
#include "runtime/layers/layers.h"

#include <stdio.h>
#include <stdlib.h>

static int bind_one(struct weight *out, const struct model_options *options, const char *name,
                    int64_t rows, int64_t cols, struct error *err)
{
    int32_t i = params_find(options->table, name);
    if (i < 0)
        return error_set(err, ERR_INTERNAL, "the plan has no parameter %s", name);
    const struct param *p = &options->table->params[i];
    if (p->numel != rows * cols)
        return error_set(err, ERR_INTERNAL, "%s has %lld elements in the plan, not %lld x %lld",
                         name, (long long)p->numel, (long long)rows, (long long)cols);
    size_t offset = (size_t)p->offset * dtype_size(options->dtype);
    out->w = (char *)options->weights + offset;
    out->g = options->grads != NULL ? (char *)options->grads + offset : NULL;
    out->rows = rows;
    out->cols = cols;
    return 0;
}

static int bind_block(struct block_weights *out, const struct model_options *options, int64_t layer,
                      struct error *err)
{
    const ModelConfig *c = options->config;
    int64_t d = c->hidden_size, f = c->intermediate_size;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    const struct {
        struct weight *weight;
        const char *suffix;
        int64_t rows, cols;
    } lines[] = {
        {&out->attn_norm, "input_layernorm", 1, d},
        {&out->q, "self_attn.q_proj", q, d},
        {&out->k, "self_attn.k_proj", kv, d},
        {&out->v, "self_attn.v_proj", kv, d},
        {&out->o, "self_attn.o_proj", d, q},
        {&out->mlp_norm, "post_attention_layernorm", 1, d},
        {&out->gate, "mlp.gate_proj", f, d},
        {&out->up, "mlp.up_proj", f, d},
        {&out->down, "mlp.down_proj", d, f},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char name[PARAM_NAME_MAX];
        snprintf(name, sizeof(name), "model.layers.%lld.%s.weight", (long long)layer,
                 lines[i].suffix);
        if (bind_one(lines[i].weight, options, name, lines[i].rows, lines[i].cols, err) != 0)
            return -1;
    }
    return 0;
}

int weights_bind(struct model_weights *out, const struct model_options *options, struct error *err)
{
    const ModelConfig *c = options->config;
    out->blocks = calloc((size_t)c->num_hidden_layers, sizeof(*out->blocks));
    if (out->blocks == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the list of weights");
    if (bind_one(&out->embed, options, "model.embed_tokens.weight", c->vocab_size, c->hidden_size,
                 err) != 0 ||
        bind_one(&out->final_norm, options, "model.norm.weight", 1, c->hidden_size, err) != 0)
        goto fail;
    if (c->tie_word_embeddings)
        out->head = out->embed;
    else if (bind_one(&out->head, options, "lm_head.weight", c->vocab_size, c->hidden_size, err) !=
             0)
        goto fail;
    for (int64_t l = 0; l < c->num_hidden_layers; l++)
        if (bind_block(&out->blocks[l], options, l, err) != 0)
            goto fail;
    return 0;
fail:
    weights_free(out);
    return -1;
}

void weights_free(struct model_weights *weights)
{
    free(weights->blocks);
    weights->blocks = NULL;
}
