/* What the ranks of each stage hold and do. */
#include "plan/plan_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model/family.h"
#include "plan/buckets.h"
#include "plan/layout_rules.h"
#include "plan/memory.h"
#include "plan/params.h"
#include "plan/schedule.h"
#include "plan/stages.h"
#include "proto/text.h"

/* Of the symbolic table: one block's parameters. */
#define TABLE_MAX_BYTES ((size_t)1 << 20)
/* Tensors of all stages together: a plan is made while others wait. */
#define TENSORS_MAX (1 << 19)
/* Buckets of all stages of a plan that is only looked at. */
#define PLANNED_BUCKETS_MAX 12288

static int set_params(Plan *plan, struct error *err)
{
    const ModelConfig *config = plan->model->config;
    struct arena arena = {.max_bytes = TABLE_MAX_BYTES};
    ParamDef **defs;
    size_t num;
    int rc = family_find(config->model_type)->params(config, &arena, &defs, &num, err);
    if (rc == 0) {
        plan->params = calloc(num, sizeof(ParamDef *));
        ASSERT(plan->params);
        for (size_t i = 0; i < num; i++) {
            plan->params[plan->n_params++] = (ParamDef *)text_clone(&defs[i]->base);
        }
    }
    arena_free(&arena);
    return rc;
}

/* What the layout makes of the family's tags. */
static void set_tags(Plan *plan)
{
    const ParallelSpec *l = plan->spec->parallel->layout;
    for (size_t i = 0; i < plan->n_params && l->sequence_parallel && l->tensor > 1; i++) {
        ParamDef *def = plan->params[i];
        if (def->on_rows) {
            def->has_tensor_grad = 1;
            def->tensor_grad = SPREAD_PARTIAL;
        }
    }
}

/* ---- buckets and actions ---- */

/* Has the runtime a list to walk for such a layout? */
static bool can_run(const Plan *plan)
{
    const Mesh *m = plan->mesh;
    return m->pipeline == 1 && m->context == 1 && m->expert == 1 &&
           plan->model->config->num_experts == 0;
}

/* A plan to look at gets larger buckets where there would be very many. */
static double bucket_size_mb(const Plan *plan, const struct param_table *t, int64_t grad_size)
{
    double mb = plan->spec->parallel->layout->bucket_mb;
    if (can_run(plan)) {
        return mb;
    }
    double total = (double)t->flat_numel * (double)grad_size / 1048576.0;
    double most = (double)(PLANNED_BUCKETS_MAX / plan->n_stages);
    if (most > BUCKETS_MAX) {
        most = BUCKETS_MAX;
    }
    /* Buckets end with a parameter: at most twice as many as full ones. */
    double least = 2 * total / (most > 1 ? most : 1);
    return mb < least ? least : mb;
}

static int set_actions(Plan *plan, int32_t idx, struct error *err)
{
    const ParallelSpec *l = plan->spec->parallel->layout;
    struct param_table table;
    if (params_expand(plan, idx, &table, err) != 0) {
        return -1;
    }
    struct schedule_rule rule = {.table = &table,
                                 .micro_batches = plan->micro_batches,
                                 .num_units = family_num_units(plan->model->config),
                                 .zero_stage = layout_shards(l) > 1 ? l->zero_stage : 0,
                                 .sums_data = plan->mesh->data > 1,
                                 .sums_words = plan->mesh->num_ranks > 1,
                                 .counts_targets = plan_can_ignore_targets(plan)};
    schedule_build(plan->stages[idx], &rule);
    params_free(&table);
    return 0;
}

static int set_stage(Plan *plan, int32_t idx, int64_t *num_tensors, struct error *err)
{
    Stage *stage = plan->stages[idx];
    struct param_table table;
    if (params_expand(plan, idx, &table, err) != 0) {
        return -1;
    }
    *num_tensors += table.num_params;
    const ParallelSpec *l = plan->spec->parallel->layout;
    struct bucket_rule rule = {.grad_size = memory_grad_size(plan->spec->training),
                               .shards = layout_shards(l)};
    rule.by_unit = l->zero_stage >= 2 && rule.shards > 1;
    rule.mb = bucket_size_mb(plan, &table, rule.grad_size);
    int rc = buckets_build(stage, &table, &rule, err);
    params_free(&table);
    return rc == 0 && can_run(plan) ? set_actions(plan, idx, err) : rc;
}

int plan_set_stages(Plan *plan, struct error *err)
{
    if (set_params(plan, err) != 0) {
        return -1;
    }
    set_tags(plan);
    stages_build(plan);
    int64_t num_tensors = 0;
    for (size_t i = 0; i < plan->n_stages; i++) {
        if (set_stage(plan, (int32_t)i, &num_tensors, err) != 0) {
            return -1;
        }
        if (num_tensors > TENSORS_MAX) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "parallel: the ranks of all stages hold more than %d tensors, at most "
                             "that many are planned; a larger parallel.expert lowers it",
                             TENSORS_MAX);
        }
    }
    return 0;
}

/* ---- memory ---- */

/* Sums of the table: experts apart, and the largest unit. */
static void take_table(struct memory_load *load, const struct param_table *t)
{
    int64_t unit = 0;
    for (int32_t i = 0; i < t->num_params; i++) {
        const struct param *p = &t->params[i];
        int64_t end = i + 1 < t->num_params ? t->params[i + 1].offset : t->flat_numel;
        *(p->expert ? &load->expert_numel : &load->dense_numel) += end - p->offset;
        unit = i > 0 && t->params[i - 1].unit == p->unit ? unit : 0;
        unit += end - p->offset;
        load->unit_numel = unit > load->unit_numel ? unit : load->unit_numel;
        load->layer_norm = load->layer_norm || p->role == ROLE_ATTN_NORM_BIAS;
        load->qk_norm = load->qk_norm || p->role == ROLE_Q_NORM;
        load->positions = load->positions || p->role == ROLE_POSITIONS;
    }
    load->num_params = t->num_params;
}

/* A slot begins at a multiple of 64 bytes: elements, with what lies between them. */
static int64_t sum_of(const int64_t *slots, size_t num, int64_t size)
{
    int64_t sum = 0, each = 64 / size;
    for (size_t i = 0; i < num; i++) {
        sum += (slots[i] + each - 1) / each * each;
    }
    return sum;
}

static void take_stage(struct memory_load *load, const Stage *stage, const ModelConfig *config,
                       const TrainingSpec *t)
{
    load->num_layers = stage_num_layers(stage);
    load->has_head = stage_has_head(stage, config->num_hidden_layers);
    load->weight_slots = sum_of(stage->weight_slots, stage->n_weight_slots, memory_element_size(t));
    load->grad_slots = sum_of(stage->grad_slots, stage->n_grad_slots, memory_grad_size(t));
    for (size_t i = 0; i < stage->n_buckets; i++) {
        int64_t numel = stage->buckets[i]->numel;
        load->bucket_numel = numel > load->bucket_numel ? numel : load->bucket_numel;
    }
}

static int stage_memory(const Plan *plan, int32_t idx, MemoryEstimate *out, struct error *err)
{
    const Stage *stage = plan->stages[idx];
    struct memory_load load = {.stage = idx,
                               .gpu = strcmp(plan->backend, "cuda") == 0,
                               .backend = plan->backend,
                               .num_ranks = plan->mesh->num_ranks,
                               .threads = plan->threads_per_rank,
                               .packed = plan_can_ignore_targets(plan)};
    take_stage(&load, stage, plan->model->config, plan->spec->training);
    struct param_table table;
    if (params_expand(plan, idx, &table, err) != 0) {
        return -1;
    }
    take_table(&load, &table);
    params_free(&table);
    memory_estimate(out, plan->model->config, plan->spec, &load);
    if (can_run(plan)) {
        memory_add_arenas(out, plan->model->config, plan->spec, &load);
    }
    if (plan->mesh->num_ranks > 1) {
        /* GPUs: what their processes on one host say to each other. */
        out->has_shared_bytes = 1;
        out->shared_bytes = load.gpu ? MEMORY_COMM_BYTES
                                     : memory_shared_bytes(stage, plan->spec, plan->model->config);
    }
    return 0;
}

/* "memory by stage: 0: 52.1 GB, 1-14: 50.0 GB, 15: 51.3 GB"; equal neighbours in one. */
static void note_stages(Plan *plan, const int64_t *totals)
{
    struct buf b = {0};
    size_t runs = 0;
    buf_puts(&b, "memory by stage:");
    for (size_t i = 0, end; i < plan->n_stages; i = end) {
        for (end = i + 1; end < plan->n_stages && totals[end] == totals[i]; end++) {
        }
        if (++runs > 24) {
            buf_printf(&b, ", and %zu more", plan->n_stages - i);
            break;
        }
        buf_printf(&b, "%s %zu", runs > 1 ? "," : "", i);
        if (end > i + 1) {
            buf_printf(&b, "-%zu", end - 1);
        }
        buf_printf(&b, ": %.1f GB", (double)totals[i] / 1e9);
    }
    plan_add_note(plan, "%s", b.data);
    buf_free(&b);
}

int plan_set_memory(Plan *plan, struct error *err)
{
    MemoryEstimate *largest = malloc(sizeof *largest);
    int64_t *totals = calloc(plan->n_stages, sizeof *totals);
    ASSERT(largest && totals);
    memory_estimate__init(largest);
    int rc = 0;
    for (size_t i = 0; i < plan->n_stages && rc == 0; i++) {
        MemoryEstimate m;
        rc = stage_memory(plan, (int32_t)i, &m, err);
        if (rc == 0 && (i == 0 || m.total_bytes > largest->total_bytes)) {
            *largest = m; /* more than one stage: none has arenas */
        }
        totals[i] = rc == 0 ? m.total_bytes : 0;
    }
    if (rc == 0 && plan->n_stages > 1 && !plan->memory) {
        note_stages(plan, totals);
    }
    if (plan->memory) {
        memory_estimate__free_unpacked(plan->memory, NULL);
    }
    plan->memory = largest;
    free(totals);
    return rc;
}
