/* The walk over a model's units, up for the forward pass and down for the backward pass. */
#include "runtime/layers/layers.h"

#include <stdlib.h>

#include "plan/memory.h"

static const struct tp one_rank = {.size = 1};

static int64_t parts_of(int64_t whole, int32_t ranks)
{
    return (whole + ranks - 1) / ranks;
}

/* Whole heads and columns on each rank; the plan's layout rules say so too. */
static int check_cut(const ModelConfig *c, int32_t ranks, struct error *err)
{
    int64_t kv = c->num_key_value_heads;
    if (ranks >= 1 && c->num_attention_heads % ranks == 0 && c->intermediate_size % ranks == 0 &&
        (kv % ranks == 0 || ranks % kv == 0))
        return 0;
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "%lld heads, %lld key/value heads and %lld ffn columns can't be cut over %d "
                     "tensor ranks",
                     (long long)c->num_attention_heads, (long long)kv,
                     (long long)c->intermediate_size, ranks);
}

static void set_sizes(struct model *m, const struct model_options *options)
{
    const ModelConfig *c = options->config;
    m->tp = options->tp != NULL ? *options->tp : one_rank;
    m->batch = options->micro_batch_size;
    m->seq_len = options->seq_len;
    m->rows = m->batch * m->seq_len;
    m->hidden = c->hidden_size;
    m->heads = c->num_attention_heads / m->tp.size;
    m->kv_heads = parts_of(c->num_key_value_heads, m->tp.size);
    m->head_dim = c->head_dim;
    m->ffn = c->intermediate_size / m->tp.size;
    m->vocab = parts_of(c->vocab_size, m->tp.size);
    m->vocab_first = m->vocab * m->tp.rank;
    int64_t left = c->vocab_size - m->vocab_first;
    m->vocab_valid = left < 0 ? 0 : left < m->vocab ? left : m->vocab;
    m->num_layers = (int32_t)c->num_hidden_layers;
    m->eps = c->rms_norm_eps;
    m->trains = options->trains;
    m->logits_ld = options->trains ? memory_logits_columns(m->vocab) : m->vocab;
    m->dtype = options->dtype;
    m->wide = dtype_wide(options->dtype);
    m->dev = options->dev;
    m->kernels = options->kernels;
    m->stream = options->stream;
    m->table = options->table;
}

/* A family with learned positions has no RoPE. */
static void find_positions(struct model *m, const ModelConfig *config)
{
    for (int32_t i = 0; i < m->table->num_params; i++)
        if (m->table->params[i].role == ROLE_POSITIONS)
            m->num_positions = config->max_position_embeddings;
}

static int open_model(struct model *m, const struct model_options *options, struct error *err)
{
    const ModelConfig *config = options->config;
    set_sizes(m, options);
    find_positions(m, config);
    if (m->num_positions > 0 && m->num_positions < m->seq_len)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "sequences of %lld tokens: the model has %lld positions",
                         (long long)m->seq_len, (long long)m->num_positions);
    m->arenas = options->arenas;
    m->owns_arenas = options->arenas == NULL;
    if (m->owns_arenas && arenas_open(&m->arenas, NULL, m->dev, NULL, err) != 0)
        return -1;
    if (weights_find(m, config, err) != 0 || acts_alloc(m, err) != 0)
        return -1;
    if (m->num_positions == 0 && rope_fill(m, config, err) != 0)
        return -1;
    return positions_fill(m, err);
}

int model_new(struct model **out, const struct model_options *options, struct error *err)
{
    ASSERT(options->micro_batch_size > 0 && options->seq_len > 0);
    ASSERT(options->dtype == DTYPE_F32 || options->dtype == DTYPE_F64 ||
           options->dtype == DTYPE_BF16);
    if (rope_check(options->config, err) != 0 ||
        check_cut(options->config, options->tp != NULL ? options->tp->size : 1, err) != 0)
        return -1;
    struct model *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for a model");
    if (open_model(m, options, err) != 0) {
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
    weights_free(m);
    free(m);
}

void model_set_batch(struct model *m, const struct batch *batch)
{
    m->input = *batch;
}

void model_set_span(struct model *m, int64_t past, int64_t num)
{
    ASSERT(!m->trains && m->batch == 1 && m->tp.size == 1);
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
    ASSERT(m->input.ids != NULL);
    ASSERT(0 <= unit_begin && unit_begin <= unit_end && unit_end <= m->num_layers + 2);
    m->backward = false;
    for (int32_t u = unit_begin; u < unit_end; u++) {
        m->unit = u;
        int rc = u == 0                   ? embed_forward(m, err)
                 : u == m->num_layers + 1 ? head_forward(m, dloss, loss_sum, err)
                                          : block_forward(m, u - 1, err);
        if (rc != 0)
            return error_wrap(err, "forward");
    }
    return 0;
}

int model_backward(struct model *m, int32_t unit_begin, int32_t unit_end, bool is_first,
                   struct error *err)
{
    ASSERT(m->trains && m->input.targets != NULL);
    ASSERT(0 <= unit_begin && unit_begin <= unit_end && unit_end <= m->num_layers + 2);
    m->backward = true;
    m->is_first = is_first;
    void *here = m->d_residual, *next = m->d_residual_next;
    for (int32_t u = unit_end - 1; u >= unit_begin; u--) {
        m->unit = u;
        int rc = u == 0                   ? embed_backward(m, m->d_residual, err)
                 : u == m->num_layers + 1 ? head_backward(m, err)
                                          : block_backward(m, u - 1, err);
        if (rc != 0) {
            m->d_residual = here;
            m->d_residual_next = next;
            return error_wrap(err, "backward");
        }
    }
    return 0;
}

const void *model_logits(const struct model *m)
{
    ASSERT(!m->trains);
    return m->logits;
}

const void *model_residual(const struct model *m, int32_t unit)
{
    ASSERT(m->trains && unit >= 0 && unit <= m->num_layers);
    return acts_residual(m, unit);
}
