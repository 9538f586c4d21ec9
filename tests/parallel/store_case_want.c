#include "tests/parallel/store_case_want.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* ---- table ----------------------------------------------------------------------------------- */

struct row {
    const char *name;
    int64_t rows, cols; /* cols 0: a vector */
    int64_t parts;      /* > 0: cut into so many that stay whole; 0: cut anywhere; -1: not cut */
    enum param_sum sum;
    bool tied;
    ParamRole role; /* says whether it is a product */
};

static void add_row(struct store_case *c, int32_t unit, const struct row *row)
{
    struct param *p = &c->table.params[c->table.num_params++];
    int64_t t = c->spec.tensor;
    *p = (struct param){.unit = unit, .num_dims = row->cols > 0 ? 2 : 1, .shard_groups = 1};
    snprintf(p->name, sizeof p->name, "%d.%s", unit, row->name);
    int64_t rows = row->rows * (row->cols > 0 ? c->spec.rows : 1);
    p->shape[0] = rows;
    p->shape[1] = row->cols;
    p->tensor_shard = row->parts >= 0;
    p->shard_parts = row->parts > 0 ? row->parts : 0;
    p->decay = row->cols > 0;
    p->tied = row->tied;
    p->role = row->role;
    p->sum = t > 1 ? row->sum : PARAM_SUM_NONE;
    int64_t parts = row->parts > 0 ? row->parts : rows;
    int64_t local = row->parts < 0 || t == 1 ? rows : (parts + t - 1) / t * (rows / parts);
    p->local_shape[0] = local;
    p->local_shape[1] = row->cols;
    int64_t width = row->cols > 0 ? row->cols : 1;
    p->numel = local * width;
    c->num_elements += rows * width;
}

static void add_rows(struct store_case *c)
{
    const struct store_case_spec *s = &c->spec;
    int32_t head = c->num_units - 1;
    int64_t k = s->kv_heads;
    const struct row head_rows[] = {{"head", 37, 3, 0, PARAM_SUM_NONE, false, ROLE_HEAD},
                                    {"norm", 5, 0, -1, PARAM_SUM_TENSOR, false, ROLE_FINAL_NORM}};
    const struct row block_rows[] = {
        {"mlp", 24, 7, 0, PARAM_SUM_NONE, false, ROLE_UP},
        {"alike", 9, 2, -1, PARAM_SUM_NONE, false, ROLE_NONE},
        {"kv", 2 * k, 11, k, k < s->tensor ? PARAM_SUM_REPLICAS : PARAM_SUM_NONE, false, ROLE_K},
        {"norm", 7, 0, -1, PARAM_SUM_TENSOR, false, ROLE_MLP_NORM},
        {"bias", 3, 0, -1, PARAM_SUM_TENSOR, false, ROLE_DOWN_BIAS}};
    const struct row embed_rows[] = {
        {"embed", 37, 3, 0, PARAM_SUM_NONE, s->tied, ROLE_EMBED},
        {"positions", 6, 3, -1, PARAM_SUM_NONE, false, ROLE_POSITIONS}};
    for (int i = s->tied ? 1 : 0; i < 2; i++)
        add_row(c, head, &head_rows[i]);
    for (int32_t u = head - 1; u > 0; u--)
        for (int i = 0; i < 5; i++)
            add_row(c, u, &block_rows[i]);
    for (int i = 0; i < 2; i++)
        add_row(c, 0, &embed_rows[i]);
}

/* A bucket is a unit, or (stage 0 and 1) three parameters. */
static bool ends_bucket(const struct store_case *c, int32_t i, int32_t num_in_bucket)
{
    const struct param_table *t = &c->table;
    if (i + 1 == t->num_params)
        return true;
    return c->stage >= 2 ? t->params[i + 1].unit != t->params[i].unit : num_in_bucket == 3;
}

static void add_buckets(struct store_case *c)
{
    struct param_table *t = &c->table;
    int64_t unit = (int64_t)PARAMS_ALIGN_NUMEL * c->num_shards;
    Bucket **all = calloc((size_t)t->num_params, sizeof *all);
    int32_t num = 0, first = 0;
    for (int32_t i = 0; i < t->num_params; i++) {
        struct param *p = &t->params[i];
        p->bucket = num;
        p->offset = t->flat_numel;
        t->flat_numel +=
            (p->numel + PARAMS_ALIGN_NUMEL - 1) / PARAMS_ALIGN_NUMEL * PARAMS_ALIGN_NUMEL;
        if (!ends_bucket(c, i, i + 1 - first))
            continue;
        Bucket *b = all[num++] = malloc(sizeof *b);
        bucket__init(b);
        b->first_param = first;
        b->num_params = i + 1 - first;
        b->offset = t->params[first].offset;
        b->numel = (t->flat_numel - b->offset + unit - 1) / unit * unit;
        b->after_unit = p->unit;
        t->flat_numel = b->offset + b->numel;
        first = i + 1;
    }
    c->plan_stage.buckets = all;
    c->plan_stage.n_buckets = (size_t)num;
    t->num_buckets = num;
    t->bucket_offsets = calloc((size_t)num, sizeof *t->bucket_offsets);
    for (int32_t i = 0; i < num; i++)
        t->bucket_offsets[i] = all[i]->offset;
}

/* ---- what is drawn --------------------------------------------------------------------------- */

static double draw(uint64_t stream, uint64_t i)
{
    return (double)(int64_t)(rng_u64(7, stream, i) >> 11) / 4503599627370496.0 - 1.0;
}

/* Element i of p on tensor rank t is padding: behind the last row of the whole. */
static bool is_padding(const struct store_case *c, const struct param *p, int32_t t, int64_t i)
{
    if (!p->tensor_shard || c->spec.tensor == 1 || p->shard_parts > 0)
        return false;
    int64_t width = p->num_dims == 2 ? p->shape[1] : 1;
    return t * p->numel + (i - p->offset) >= p->shape[0] * width;
}

/* The same element in every layout of the buffers. */
static uint64_t name_of(const struct store_case *c, const struct param *p, int64_t idx)
{
    return (uint64_t)(p - c->table.params) << 32 | (uint64_t)(idx - p->offset);
}

static bool is_alike(const struct param *p)
{
    return !p->tensor_shard && p->sum == PARAM_SUM_NONE;
}

double store_case_grad(const struct store_case *c, int32_t step, int32_t data, int32_t tensor,
                       int32_t micro, int32_t use, const struct param *p, int64_t idx)
{
    if (is_padding(c, p, tensor, idx))
        return 0.0;
    if (c->spec.ones)
        return 1.0;
    uint64_t key = (uint64_t)(is_alike(p) ? 0 : tensor);
    key = key * 64 + (uint64_t)data;
    key = key * 64 + (uint64_t)micro;
    key = (key * 64 + (uint64_t)step) * 2 + (uint64_t)use;
    return draw(key + 1000, name_of(c, p, idx));
}

bool store_case_uses(const struct store_case *c, int32_t unit, const struct param *p, int32_t *use)
{
    *use = p->unit != unit;
    return p->unit == unit || (p->tied && unit == c->num_units - 1);
}

/* Which of all that hold a part of p: the ranks with the same number hold the same. */
static int32_t part_of(const struct store_case *c, const struct param *p, int32_t tensor)
{
    if (!p->tensor_shard)
        return 0;
    if (p->shard_parts > 0 && p->shard_parts < c->spec.tensor)
        return (int32_t)(tensor * p->shard_parts / c->spec.tensor);
    return tensor;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* One rank's own, of one micro-batch. */
static double own(const struct store_case *c, int32_t step, int32_t d, int32_t t, int32_t m,
                  const struct param *p, int64_t i, double sum)
{
    for (int32_t u = c->num_units - 1; u >= 0; u--) {
        int32_t use;
        if (store_case_uses(c, u, p, &use))
            sum += store_case_grad(c, step, d, t, m, use, p, i);
    }
    return sum;
}

/* One data rank's, micro-batches m_begin <= m < m_end, summed over the tensor ranks that the tag
 * names. */
static double tensor_sum(const struct store_case *c, int32_t step, int32_t d, int32_t tensor,
                         int32_t m_begin, int32_t m_end, const struct param *p, int64_t i)
{
    double sum = 0.0;
    bool first = true;
    for (int32_t t = 0; t < c->spec.tensor; t++) {
        bool takes_part =
            t == tensor || p->sum == PARAM_SUM_TENSOR ||
            (p->sum == PARAM_SUM_REPLICAS && part_of(c, p, t) == part_of(c, p, tensor));
        if (!takes_part)
            continue;
        double mine = 0.0;
        for (int32_t m = m_begin; m < m_end; m++)
            mine = own(c, step, d, t, m, p, i, mine);
        sum = first ? mine : sum + mine;
        first = false;
    }
    return sum;
}

static double block_sum(const struct store_case *c, int32_t step, int32_t block, int32_t tensor,
                        int32_t m_begin, int32_t m_end, const struct param *p, int64_t i)
{
    int32_t n = c->num_shards;
    double sum = tensor_sum(c, step, block * n, tensor, m_begin, m_end, p, i);
    for (int32_t k = 1; k < n; k++)
        sum += tensor_sum(c, step, block * n + k, tensor, m_begin, m_end, p, i);
    return sum;
}

/* As the store must do it, to the bit: from stage 2 on, each micro-batch by itself. */
static double all_sum(const struct store_case *c, int32_t step, int32_t tensor,
                      const struct param *p, int64_t i)
{
    double sum = 0.0;
    int32_t num_micro = c->spec.micro_batches;
    for (int32_t b = 0; b < c->spec.data / c->num_shards; b++) {
        double mine;
        if (c->stage < 2) {
            mine = block_sum(c, step, b, tensor, 0, num_micro, p, i);
        } else {
            mine = block_sum(c, step, b, tensor, 0, 1, p, i);
            for (int32_t m = 1; m < num_micro; m++)
                mine += block_sum(c, step, b, tensor, m, m + 1, p, i);
        }
        sum = b == 0 ? mine : sum + mine;
    }
    return sum;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void update(const struct store_case *c, int32_t step, int32_t t, const struct param *p,
                   int64_t i)
{
    double g = store_case_at(c, c->grads, step, t)[i];
    double w = store_case_at(c, c->weights, step, t)[i];
    double decay = p->decay ? CASE_DECAY : 0.0;
    if (!c->spec.adamw) {
        store_case_at(c, c->weights, step + 1, t)[i] = w - CASE_LR * (g + decay * w);
        return;
    }
    double m = store_case_at(c, c->exp_avg, step, t)[i] * CASE_BETA1 + (1 - CASE_BETA1) * g;
    double v = store_case_at(c, c->exp_avg_sq, step, t)[i] * CASE_BETA2 + (1 - CASE_BETA2) * g * g;
    store_case_at(c, c->exp_avg, step + 1, t)[i] = m;
    store_case_at(c, c->exp_avg_sq, step + 1, t)[i] = v;
    double m_hat = m / (1 - pow(CASE_BETA1, step + 1)), v_hat = v / (1 - pow(CASE_BETA2, step + 1));
    store_case_at(c, c->weights, step + 1, t)[i] =
        w - CASE_LR * (m_hat / (sqrt(v_hat) + CASE_EPS) + decay * w);
}

/* Of the whole tensor: each of its elements once, whoever holds it. */
static double squares(const struct store_case *c, int32_t step, const struct param *p)
{
    double sum = 0.0;
    for (int32_t t = 0; t < c->spec.tensor; t++) {
        bool first = t == 0 || part_of(c, p, t) != part_of(c, p, t - 1);
        for (int64_t i = p->offset; first && i < p->offset + p->numel; i++) {
            double g = store_case_at(c, c->grads, step, t)[i];
            sum += g * g;
        }
    }
    return sum;
}

static void want_step(struct store_case *c, int32_t step)
{
    double sum = 0.0;
    for (int32_t k = 0; k < c->table.num_params; k++) {
        const struct param *p = &c->table.params[k];
        for (int32_t t = 0; t < c->spec.tensor; t++)
            for (int64_t i = p->offset; i < p->offset + p->numel; i++) {
                double g = all_sum(c, step, t, p, i);
                store_case_at(c, c->grads, step, t)[i] = g;
                update(c, step, t, p, i);
            }
        sum += squares(c, step, p);
    }
    c->norms[step] = sqrt(sum);
}

static void want_start(struct store_case *c)
{
    for (int32_t k = 0; k < c->table.num_params; k++) {
        const struct param *p = &c->table.params[k];
        for (int32_t t = 0; t < c->spec.tensor; t++)
            for (int64_t i = p->offset; i < p->offset + p->numel; i++)
                store_case_at(c, c->weights, 0, t)[i] =
                    is_padding(c, p, t, i) ? 0.0
                                           : draw((uint64_t)part_of(c, p, t), name_of(c, p, i));
    }
}

/* ---- the plan's part that a store reads ------------------------------------------------------ */

static double betas[2] = {CASE_BETA1, CASE_BETA2};

static void fill_plan(struct store_case *c)
{
    Plan *plan = &c->plan;
    plan__init(plan);
    plan->spec = malloc(sizeof *plan->spec);
    job_spec__init(plan->spec);
    TrainingSpec *training = plan->spec->training = malloc(sizeof *training);
    training_spec__init(training);
    training->clip_grad_norm = 0.0;
    OptimizerSpec *optimizer = training->optimizer = malloc(sizeof *optimizer);
    optimizer_spec__init(optimizer);
    optimizer->name = c->spec.adamw ? "adamw" : "sgd";
    optimizer->n_betas = 2;
    optimizer->betas = betas;
    optimizer->eps = CASE_EPS;
    optimizer->weight_decay = CASE_DECAY;
    ParallelChoice *parallel = plan->spec->parallel = malloc(sizeof *parallel);
    parallel_choice__init(parallel);
    parallel->layout = malloc(sizeof *parallel->layout);
    parallel_spec__init(parallel->layout);
    parallel->layout->data = c->spec.data;
    parallel->layout->tensor = c->spec.tensor;
    parallel->layout->zero_stage = c->spec.zero_stage;
    parallel->layout->shard_size = c->spec.shard_size;
    plan->mesh = malloc(sizeof *plan->mesh);
    mesh__init(plan->mesh);
    plan->mesh->data = c->spec.data;
    plan->mesh->tensor = c->spec.tensor;
    plan->mesh->num_ranks = c->spec.data * c->spec.tensor;
}

/* Slots of the largest unit; the third is a tied embedding's own. */
static void fill_slots(struct store_case *c)
{
    size_t num = c->spec.tied ? 3 : 2;
    int64_t largest = 0;
    for (int32_t i = 0; i < c->table.num_buckets; i++) {
        int64_t n = c->plan_stage.buckets[i]->numel;
        largest = n > largest ? n : largest;
    }
    Stage *s = &c->plan_stage;
    s->n_weight_slots = c->stage == 3 ? num : 0;
    s->n_grad_slots = c->stage >= 2 ? num : 0;
    s->weight_slots = calloc(num, sizeof *s->weight_slots);
    s->grad_slots = calloc(num, sizeof *s->grad_slots);
    for (size_t i = 0; i < num; i++)
        s->weight_slots[i] = s->grad_slots[i] = largest;
}

void store_case_open(struct store_case *c, const struct store_case_spec *spec)
{
    *c = (struct store_case){.spec = *spec};
    struct store_case_spec *s = &c->spec;
    s->data = s->data ? s->data : 1;
    s->tensor = s->tensor ? s->tensor : 1;
    s->micro_batches = s->micro_batches ? s->micro_batches : 1;
    s->steps = s->steps ? s->steps : 1;
    s->blocks = s->blocks ? s->blocks : 2;
    s->rows = s->rows ? s->rows : 1;
    s->kv_heads = s->kv_heads ? s->kv_heads : s->tensor;
    c->num_shards = s->zero_stage == 0 ? 1 : s->shard_size ? s->shard_size : s->data;
    c->stage = c->num_shards == 1 ? 0 : s->zero_stage;
    c->num_units = s->blocks + 2;
    c->table.params = calloc((size_t)(5 * s->blocks + 4), sizeof *c->table.params);
    stage__init(&c->plan_stage);
    add_rows(c);
    add_buckets(c);
    fill_slots(c);
    c->plan_stage.flat_numel = c->table.flat_numel;
    fill_plan(c);
    size_t per_step = (size_t)s->tensor * (size_t)c->table.flat_numel;
    size_t steps = (size_t)s->steps;
    c->grads = calloc(steps * per_step, sizeof *c->grads);
    c->norms = calloc(steps, sizeof *c->norms);
    c->weights = calloc((steps + 1) * per_step, sizeof *c->weights);
    c->exp_avg = calloc((steps + 1) * per_step, sizeof *c->exp_avg);
    c->exp_avg_sq = calloc((steps + 1) * per_step, sizeof *c->exp_avg_sq);
    want_start(c);
    for (int32_t i = 0; i < s->steps; i++)
        want_step(c, i);
}

void store_case_close(struct store_case *c)
{
    Plan *plan = &c->plan;
    for (size_t i = 0; i < c->plan_stage.n_buckets; i++)
        free(c->plan_stage.buckets[i]);
    free(c->plan_stage.buckets);
    free(c->plan_stage.weight_slots);
    free(c->plan_stage.grad_slots);
    free(plan->mesh);
    free(plan->spec->parallel->layout);
    free(plan->spec->parallel);
    free(plan->spec->training->optimizer);
    free(plan->spec->training);
    free(plan->spec);
    params_free(&c->table);
    free(c->grads);
    free(c->norms);
    free(c->weights);
    free(c->exp_avg);
    free(c->exp_avg_sq);
}
