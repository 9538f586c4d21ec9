/* The launches of a model's units, as runtime/layers makes them, function by function. */
#include "plan/launches_parts.h"

#include "model/family.h"
#include "plan/memory.h"
#include "plan/plan.h"

/* ---- sizes ---------------------------------------------------------------------------------- */

static void find_roles(struct launch_model *m, const struct param_table *table)
{
    for (int32_t i = 0; i < table->num_params; i++) {
        const struct param *p = &table->params[i];
        m->layer_norm = m->layer_norm || p->role == ROLE_ATTN_NORM_BIAS;
        m->qk_norm = m->qk_norm || p->role == ROLE_Q_NORM;
        m->positions = m->positions || p->role == ROLE_POSITIONS;
        m->gated = m->gated || p->role == ROLE_GATE;
        m->q_bias = m->q_bias || p->role == ROLE_Q_BIAS || p->role == ROLE_QKV_BIAS;
        m->o_bias = m->o_bias || p->role == ROLE_O_BIAS;
        m->up_bias = m->up_bias || p->role == ROLE_UP_BIAS;
        m->down_bias = m->down_bias || p->role == ROLE_DOWN_BIAS;
        m->in_out = m->in_out || p->in_out;
    }
}

static int64_t parts_of(int64_t whole, int64_t ranks)
{
    return (whole + ranks - 1) / ranks;
}

/* What a token attends to, from the FLOPs that the plan counts for it. */
static double mean_attended(const Plan *plan)
{
    const ModelConfig *c = plan->model->config;
    double none = family_flops_per_token(c, 0);
    double one = family_flops_per_token(c, 1) - none;
    return one > 0 ? (plan->flops_per_token - none) / one : 0;
}

void launch_model_init(struct launch_model *m, const Plan *plan, const struct param_table *table)
{
    const ModelConfig *c = plan->model->config;
    const TrainingSpec *t = plan->spec->training;
    int64_t ranks = plan->mesh->tensor;
    *m = (struct launch_model){
        .b = t->micro_batch_size,
        .t = t->seq_len,
        .r = t->micro_batch_size * t->seq_len,
        .d = c->hidden_size,
        .h = c->num_attention_heads / ranks,
        .kv = parts_of(c->num_key_value_heads, ranks),
        .e = c->head_dim,
        .f = c->intermediate_size / ranks,
        .v = parts_of(c->vocab_size, ranks),
        .num_layers = (int32_t)c->num_hidden_layers,
        .tensor = ranks,
        .sequence = ranks > 1 && plan->spec->parallel->layout->sequence_parallel,
        .packed = plan_can_ignore_targets(plan),
        .attended = mean_attended(plan),
        .elem = (int32_t)memory_element_size(t),
        .wide = (int32_t)memory_grad_size(t),
    };
    m->own = m->sequence ? parts_of(m->r, ranks) : m->r;
    m->valid = m->v < c->vocab_size ? m->v : c->vocab_size;
    find_roles(m, table);
}

/* ---- matrices ------------------------------------------------------------------------------- */

struct matrix {
    const char *name, *input, *weight; /* of its three products */
    int64_t rows, cols;                /* outputs, inputs */
    int64_t distance;                  /* of rows as stored */
    int64_t apart;                     /* of rows of its outputs; 0: side by side */
    bool in_out, bias;
};

static struct matrix matrix_of(const struct launch_model *m, int64_t rows, int64_t cols, bool bias)
{
    return (struct matrix){.rows = rows,
                           .cols = cols,
                           .distance = m->in_out ? rows : cols,
                           .in_out = m->in_out,
                           .bias = bias};
}

/* q, k and v may lie in one matrix. */
static struct matrix head_matrix(const struct launch_model *m, int64_t heads)
{
    struct matrix x = matrix_of(m, heads * m->e, m->d, m->q_bias);
    if (m->in_out) {
        x.distance = (m->h + 2 * m->kv) * m->e;
    }
    return x;
}

struct matrices {
    struct matrix q, k, v, o, gate, up, down, head;
};

static void name(struct matrix *x, const char *name, const char *input, const char *weight)
{
    x->name = name;
    x->input = input;
    x->weight = weight;
}

static struct matrices matrices_of(const struct launch_model *m)
{
    struct matrices all = {
        .q = head_matrix(m, m->h),
        .k = head_matrix(m, m->kv),
        .v = head_matrix(m, m->kv),
        .o = matrix_of(m, m->d, m->h * m->e, m->o_bias),
        .gate = matrix_of(m, m->f, m->d, false),
        .up = matrix_of(m, m->f, m->d, m->up_bias),
        .down = matrix_of(m, m->d, m->f, m->down_bias),
        .head = {.rows = m->v,
                 .cols = m->d,
                 .distance = m->d,
                 .apart = memory_logits_columns(m->v)},
    };
    name(&all.q, "q", "q, input", "q, weight");
    name(&all.k, "k", "k, input", "k, weight");
    name(&all.v, "v", "v, input", "v, weight");
    name(&all.o, "o", "o, input", "o, weight");
    name(&all.gate, "gate", "gate, input", "gate, weight");
    name(&all.up, "up", "up, input", "up, weight");
    name(&all.down, "down", "down, input", "down, weight");
    name(&all.head, "logits", "logits, input", "logits, weight");
    return all;
}

/* From one row of its outputs to the next. */
static int64_t apart(const struct matrix *x)
{
    return x->apart > 0 ? x->apart : x->rows;
}

static struct launch_product forward_of(const struct launch_walk *w, const struct matrix *x)
{
    return (struct launch_product){.what = x->name,
                                   .m = w->model.r,
                                   .n = x->rows,
                                   .k = x->cols,
                                   .lda = x->cols,
                                   .ldb = x->distance,
                                   .ldc = apart(x),
                                   .c_elem = w->model.elem,
                                   .bias = x->bias};
}

static void forward(struct launch_walk *w, const struct matrix *x)
{
    struct launch_product p = forward_of(w, x);
    launch_gemm(w, &p);
}

static struct launch_product input_of(const struct launch_walk *w, const struct matrix *x)
{
    return (struct launch_product){.what = x->input,
                                   .m = w->model.r,
                                   .n = x->cols,
                                   .k = x->rows,
                                   .lda = apart(x),
                                   .ldb = x->distance,
                                   .c_elem = w->model.elem};
}

static void backward_input(struct launch_walk *w, const struct matrix *x, bool adds)
{
    struct launch_product p = input_of(w, x);
    p.adds = adds;
    launch_gemm(w, &p);
}

static void backward_weight(struct launch_walk *w, const struct matrix *x)
{
    struct launch_product p = {.what = x->weight,
                               .m = x->in_out ? x->cols : x->rows,
                               .n = x->in_out ? x->rows : x->cols,
                               .k = w->model.r,
                               .c_elem = w->model.wide,
                               .adds = !w->is_first};
    p.lda = x->in_out ? p.m : apart(x);
    p.ldb = p.n;
    launch_gemm(w, &p);
}

static void backward_layer(struct launch_walk *w, const struct matrix *x)
{
    backward_weight(w, x);
    if (x->bias) {
        launch_columns(w, LAUNCH_COLUMN_SUM, x->name, w->model.r, x->rows);
    }
}

/* ---- the residual stream -------------------------------------------------------------------- */

static void gather(struct launch_walk *w)
{
    const struct launch_model *m = &w->model;
    if (m->sequence) {
        launch_comm(w, LAUNCH_ALL_GATHER, "rows", m->own * m->tensor * m->d, m->elem, m->tensor,
                    AXIS_TENSOR);
    }
}

static void sum(struct launch_walk *w)
{
    const struct launch_model *m = &w->model;
    if (m->sequence) {
        launch_comm(w, LAUNCH_REDUCE_SCATTER, "rows", m->own * m->tensor * m->d, m->elem, m->tensor,
                    AXIS_TENSOR);
    } else if (m->tensor > 1) {
        launch_comm(w, LAUNCH_ALL_REDUCE, "rows", m->r * m->d, m->elem, m->tensor, AXIS_TENSOR);
    }
}

static void project(struct launch_walk *w, const struct matrix *x)
{
    const struct launch_model *m = &w->model;
    struct launch_product p = forward_of(w, x);
    p.adds = m->tensor == 1;
    p.bias = p.bias && m->tensor == 1;
    launch_gemm(w, &p);
    if (m->tensor == 1) {
        return;
    }
    sum(w);
    if (x->bias) {
        launch_columns(w, LAUNCH_ADD_BIAS, x->name, m->own, m->d);
    }
    launch_each_number(w, LAUNCH_ADD, "residual", m->own * m->d, m->elem);
}

static void stream_bias(struct launch_walk *w, const struct matrix *x)
{
    if (x->bias) {
        launch_columns(w, LAUNCH_COLUMN_SUM, x->name, w->model.own, w->model.d);
    }
}

static void copy_gradient(struct launch_walk *w)
{
    launch_bytes(w, LAUNCH_COPY, "residual's gradient", w->model.own * w->model.d * w->model.elem);
}

/* ---- blocks --------------------------------------------------------------------------------- */

static void rotate(struct launch_walk *w)
{
    if (!w->model.positions) {
        launch_rope(w, "q", w->model.h);
        launch_rope(w, "k", w->model.kv);
    }
}

static void attention_forward(struct launch_walk *w, const struct matrices *x)
{
    const struct launch_model *m = &w->model;
    launch_norm(w, "attention", m->own, m->d, m->layer_norm);
    gather(w);
    forward(w, &x->q);
    forward(w, &x->k);
    forward(w, &x->v);
    if (m->qk_norm) {
        launch_norm(w, "q", m->r * m->h, m->e, false);
        launch_norm(w, "k", m->r * m->kv, m->e, false);
    }
    rotate(w);
    launch_attention(w, false);
    project(w, &x->o);
}

static void mlp_forward(struct launch_walk *w, const struct matrices *x)
{
    const struct launch_model *m = &w->model;
    launch_norm(w, "mlp", m->own, m->d, m->layer_norm);
    gather(w);
    if (m->gated) {
        forward(w, &x->gate);
        forward(w, &x->up);
        launch_each_number(w, LAUNCH_SWIGLU_FWD, "", m->r * m->f, m->elem);
    } else {
        struct launch_product p = forward_of(w, &x->up);
        p.gelu = true;
        launch_gemm(w, &p);
    }
    project(w, &x->down);
}

static void mlp_backward(struct launch_walk *w, const struct matrices *x)
{
    const struct launch_model *m = &w->model;
    gather(w);
    if (m->gated) {
        backward_input(w, &x->down, false);
        launch_each_number(w, LAUNCH_SWIGLU_BWD, "", m->r * m->f, m->elem);
        backward_input(w, &x->gate, false);
    } else {
        struct launch_product p = input_of(w, &x->down);
        p.gelu_of = true;
        launch_gemm(w, &p);
    }
    backward_input(w, &x->up, m->gated);
    sum(w);
    copy_gradient(w);
    launch_norm_backward(w, "mlp", m->own, m->d, m->layer_norm, true);
    backward_weight(w, &x->down);
    stream_bias(w, &x->down);
    gather(w);
    if (m->gated) {
        backward_layer(w, &x->gate);
    }
    backward_layer(w, &x->up);
}

static void attention_backward(struct launch_walk *w, const struct matrices *x)
{
    const struct launch_model *m = &w->model;
    gather(w);
    backward_input(w, &x->o, false);
    launch_attention(w, true);
    rotate(w);
    if (m->qk_norm) {
        launch_norm_backward(w, "q", m->r * m->h, m->e, false, false);
        launch_norm_backward(w, "k", m->r * m->kv, m->e, false, false);
    }
    backward_input(w, &x->q, false);
    backward_input(w, &x->k, true);
    backward_input(w, &x->v, true);
    sum(w);
    copy_gradient(w);
    launch_norm_backward(w, "attention", m->own, m->d, m->layer_norm, true);
    backward_weight(w, &x->o);
    stream_bias(w, &x->o);
    gather(w);
    backward_layer(w, &x->q);
    backward_layer(w, &x->k);
    backward_layer(w, &x->v);
}

/* ---- embedding and head --------------------------------------------------------------------- */

static void embed_forward(struct launch_walk *w)
{
    const struct launch_model *m = &w->model;
    int64_t max = w->plan->model->config->max_position_embeddings;
    launch_embed(w, "", m->r, m->v, false);
    sum(w);
    if (m->positions) {
        launch_embed(w, "positions", m->own, max, false);
        launch_each_number(w, LAUNCH_ADD, "positions", m->own * m->d, m->elem);
    } else if (m->tensor > 1 && !m->sequence) {
        launch_bytes(w, LAUNCH_COPY, "sum", m->r * m->d * m->elem);
    }
}

static void embed_backward(struct launch_walk *w)
{
    const struct launch_model *m = &w->model;
    if (m->positions) {
        launch_embed(w, "positions", m->own, w->plan->model->config->max_position_embeddings, true);
    }
    gather(w);
    launch_embed(w, "", m->r, m->v, true);
}

static void loss(struct launch_walk *w)
{
    const struct launch_model *m = &w->model;
    if (m->tensor == 1) {
        launch_loss(w, LAUNCH_CROSS_ENTROPY, m->v);
    } else {
        launch_loss(w, LAUNCH_CE_MAX, m->valid);
        launch_comm(w, LAUNCH_ALL_REDUCE, "maxima", m->r, 8, m->tensor, AXIS_TENSOR);
        launch_loss(w, LAUNCH_CE_SUM, m->valid);
        launch_comm(w, LAUNCH_ALL_REDUCE, "sums", 2 * m->r, 8, m->tensor, AXIS_TENSOR);
        launch_loss(w, LAUNCH_CE_FINISH, m->v);
    }
    launch_each_number(w, LAUNCH_SUM_DOUBLE, "loss", m->r, 8);
    launch_each_number(w, LAUNCH_ADD, "loss", 1, 8);
}

static void head_forward(struct launch_walk *w, const struct matrices *x)
{
    const struct launch_model *m = &w->model;
    launch_norm(w, "final", m->own, m->d, m->layer_norm);
    gather(w);
    forward(w, &x->head);
    loss(w);
}

static void head_backward(struct launch_walk *w, const struct matrices *x)
{
    const struct launch_model *m = &w->model;
    backward_input(w, &x->head, false);
    sum(w);
    launch_norm_backward(w, "final", m->own, m->d, m->layer_norm, false);
    gather(w);
    backward_weight(w, &x->head);
}

/* ---- units ---------------------------------------------------------------------------------- */

/* Tensor ranks talk within a pass: then nothing is captured; nor is the head's forward pass. */
void launch_forward(struct launch_walk *w, int32_t unit_begin, int32_t unit_end)
{
    struct matrices x = matrices_of(&w->model);
    w->graph = true;
    for (int32_t u = unit_begin; u < unit_end; u++) {
        bool head = u == w->model.num_layers + 1;
        w->captured = w->model.tensor == 1 && !head;
        if (u == 0) {
            w->place = LAUNCH_FORWARD_EMBED;
            embed_forward(w);
        } else if (head) {
            w->place = LAUNCH_FORWARD_HEAD;
            head_forward(w, &x);
        } else {
            w->place = LAUNCH_FORWARD_BLOCK;
            attention_forward(w, &x);
            mlp_forward(w, &x);
        }
    }
    w->captured = w->graph = false;
}

void launch_backward(struct launch_walk *w, int32_t unit_begin, int32_t unit_end)
{
    struct matrices x = matrices_of(&w->model);
    w->captured = w->graph = w->model.tensor == 1;
    for (int32_t u = unit_end - 1; u >= unit_begin; u--) {
        if (u == 0) {
            w->place = LAUNCH_BACKWARD_EMBED;
            embed_backward(w);
        } else if (u == w->model.num_layers + 1) {
            w->place = LAUNCH_BACKWARD_HEAD;
            head_backward(w, &x);
        } else {
            w->place = LAUNCH_BACKWARD_BLOCK;
            mlp_backward(w, &x);
            attention_backward(w, &x);
        }
    }
    w->captured = w->graph = false;
}
