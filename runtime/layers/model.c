/* The walk over a model's units, up for the forward pass and down for the backward pass. */
#include "runtime/layers/layers.h"

#include <stdlib.h>

static void set_sizes(struct model *m, const struct model_options *options)
{
    const ModelConfig *c = options->config;
    m->batch = options->micro_batch_size;
    m->seq_len = options->seq_len;
    m->rows = m->batch * m->seq_len;
    m->hidden = c->hidden_size;
    m->heads = c->num_attention_heads;
    m->kv_heads = c->num_key_value_heads;
    m->head_dim = c->head_dim;
    m->ffn = c->intermediate_size;
    m->vocab = c->vocab_size;
    m->num_layers = (int32_t)c->num_hidden_layers;
    m->eps = c->rms_norm_eps;
    m->dtype = options->dtype;
    m->dev = options->dev;
    m->kernels = options->kernels;
    m->stream = options->stream;
}

int model_new(struct model **out, const struct model_options *options, struct error *err)
{
    ASSERT(options->micro_batch_size > 0 && options->seq_len > 0);
    ASSERT(options->dtype == DTYPE_F32 || options->dtype == DTYPE_F64);
    if (rope_check(options->config, err) != 0)
        return -1;
    struct model *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for a model");
    set_sizes(m, options);
    if (weights_bind(&m->weights, options, err) != 0 || acts_alloc(m, err) != 0 ||
        rope_fill(m, options->config, err) != 0) {
        model_free(m);
        return -1;
    }
    *out = m;
    return 0;
}

void model_free(struct model *m)
{
    if (m == NULL)
        return;
    acts_free(m);
    weights_free(&m->weights);
    free(m);
}

void model_set_batch(struct model *m, const int32_t *ids, const int32_t *targets)
{
    m->ids = ids;
    m->targets = targets;
}

void model_set_span(struct model *m, int64_t past, int64_t num)
{
    ASSERT(!acts_keep_all(m) && m->batch == 1);
    ASSERT(past >= 0 && num > 0 && past + num <= m->seq_len);
    m->past = past;
    m->rows = num;
}

static int block_forward(struct model *m, int32_t l, struct error *err)
{
    if (attention_forward(m, l, err) != 0 || mlp_forward(m, l, err) != 0)
        return error_wrap(err, "block %d", l);
    return 0;
}

/* After this the gradient of the residual stream stands one place further down. */
static void move_gradient(struct model *m)
{
    void *here = m->d_residual;
    m->d_residual = m->d_residual_next;
    m->d_residual_next = here;
}

static int block_backward(struct model *m, int32_t l, struct error *err)
{
    if (mlp_backward_input(m, l, m->d_residual_next, m->d_residual, err) != 0 ||
        mlp_backward_weight(m, l, m->d_residual, err) != 0)
        return error_wrap(err, "block %d", l);
    move_gradient(m);
    if (attention_backward_input(m, l, m->d_residual_next, m->d_residual, err) != 0 ||
        attention_backward_weight(m, l, m->d_residual, err) != 0)
        return error_wrap(err, "block %d", l);
    move_gradient(m);
    return 0;
}

static int head_backward(struct model *m, struct error *err)
{
    if (head_backward_input(m, m->d_residual, err) != 0)
        return -1;
    return head_backward_weight(m, err);
}

int model_forward(struct model *m, int32_t unit_begin, int32_t unit_end, double dloss,
                  double *loss_sum, struct error *err)
{
    ASSERT(m->ids != NULL);
    ASSERT(0 <= unit_begin && unit_begin <= unit_end && unit_end <= m->num_layers + 2);
    for (int32_t u = unit_begin; u < unit_end; u++) {
        int rc = u == 0                   ? embed_forward(m, err)
                 : u == m->num_layers + 1 ? head_forward(m, dloss, loss_sum, err)
                                          : block_forward(m, u - 1, err);
        if (rc != 0)
            return error_wrap(err, "forward");
    }
    return 0;
}

int model_backward(struct model *m, int32_t unit_begin, int32_t unit_end, struct error *err)
{
    ASSERT(acts_keep_all(m) && m->targets != NULL);
    ASSERT(0 <= unit_begin && unit_begin <= unit_end && unit_end <= m->num_layers + 2);
    for (int32_t u = unit_end - 1; u >= unit_begin; u--) {
        int rc = u == 0                   ? embed_backward(m, m->d_residual, err)
                 : u == m->num_layers + 1 ? head_backward(m, err)
                                          : block_backward(m, u - 1, err);
        if (rc != 0)
            return error_wrap(err, "backward");
    }
    return 0;
}

const void *model_logits(const struct model *m)
{
    ASSERT(!acts_keep_all(m));
    return m->logits;
}
