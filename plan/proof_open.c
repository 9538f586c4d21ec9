/* What stands still in a plan: layout, table, buckets, slots. */
#include <stdlib.h>

#include "model/family.h"
#include "plan/layout_rules.h"
#include "plan/mesh.h"
#include "plan/proof_parts.h"
#include "plan/schedule.h"

static int refuse(struct error *err, const char *what)
{
    return error_set(err, ERR_INVALID_ARGUMENT, "plan: %s", what);
}

/* ---- layout --------------------------------------------------------------------------------- */

static bool is_complete(const Plan *plan)
{
    const JobSpec *s = plan->spec;
    if (!s || !s->parallel || s->parallel->choice_case != PARALLEL_CHOICE__CHOICE_LAYOUT ||
        !s->parallel->layout || !s->training || !s->data || s->data->n_train < 1 ||
        s->data->n_train != plan->n_train || !plan->mesh || !plan->model || !plan->model->config ||
        plan->n_stages != 1) {
        return false;
    }
    for (size_t i = 0; i < s->data->n_train; i++) {
        if (!s->data->train[i]->format) {
            return false;
        }
    }
    return true;
}

/* The mesh is the layout's, and what is cut comes out even. */
static bool layout_right(const Plan *plan)
{
    const ParallelSpec *l = plan->spec->parallel->layout;
    const Mesh *m = plan->mesh;
    if (m->data < 1 || m->data > MESH_MAX_RANKS || m->tensor < 1 || m->tensor > MESH_MAX_RANKS) {
        return false;
    }
    return m->pipeline == 1 && m->context == 1 && m->expert == 1 && l->data == m->data &&
           l->tensor == m->tensor && l->pipeline == 1 && l->context == 1 && l->expert == 1 &&
           m->num_ranks == m->data * m->tensor && l->zero_stage >= 0 && l->zero_stage <= 3 &&
           l->shard_size >= 0 && (l->shard_size == 0 || l->data % l->shard_size == 0);
}

static bool batch_right(const Plan *plan)
{
    const TrainingSpec *t = plan->spec->training;
    int64_t batch;
    return plan->micro_batches >= 1 && plan->micro_batches <= SCHEDULE_MAX_MICRO_BATCHES &&
           t->micro_batch_size >= 1 &&
           !__builtin_mul_overflow(plan->micro_batches * plan->mesh->data, t->micro_batch_size,
                                   &batch) &&
           batch == t->global_batch_size;
}

/* ---- buckets and slots ---------------------------------------------------------------------- */

static void find_units(struct proof *p)
{
    const struct param_table *t = &p->table;
    for (int32_t u = 0; u < p->num_units; u++) {
        p->units[u].last_bucket = -1;
    }
    for (int32_t b = 0; b < p->num_buckets; b++) {
        p->buckets[b] = (struct proof_bucket){p->num_units, -1, -1, -1, false, false};
    }
    for (int32_t i = 0; i < t->num_params; i++) {
        struct proof_unit *u = &p->units[t->params[i].unit];
        struct proof_bucket *b = &p->buckets[t->params[i].bucket];
        if (u->last_bucket < 0) {
            u->first_bucket = t->params[i].bucket;
        }
        u->last_bucket = t->params[i].bucket;
        u->partial = u->partial || t->params[i].sum != PARAM_SUM_NONE;
        b->first_unit = t->params[i].unit < b->first_unit ? t->params[i].unit : b->first_unit;
        b->last_unit = t->params[i].unit > b->last_unit ? t->params[i].unit : b->last_unit;
        p->tied = p->tied || t->params[i].tied;
    }
}

static int check_buckets(struct proof *p, struct error *err)
{
    int64_t even = layout_shards(p->plan->spec->parallel->layout) * PARAMS_ALIGN_NUMEL;
    if ((size_t)p->num_buckets != p->stage->n_buckets ||
        p->stage->flat_numel != p->table.flat_numel) {
        return refuse(err, "its buckets don't make up the flat buffer");
    }
    for (int32_t i = 0; i < p->num_buckets; i++) {
        const struct proof_bucket *b = &p->buckets[i];
        if (p->stage->buckets[i]->numel % even != 0) {
            return refuse(err, "a bucket doesn't come out even over the ranks that share it");
        }
        if (p->zero_stage >= 2 && b->first_unit != b->last_unit) {
            return refuse(err, "a bucket is of two units, with gradients that are shared");
        }
    }
    for (int32_t i = 0; i < p->num_units; i++) {
        const struct proof_unit *u = &p->units[i];
        if (u->last_bucket < 0 || (p->zero_stage >= 2 && u->first_bucket != u->last_bucket)) {
            return refuse(err, "a unit has no bucket, or not one bucket");
        }
    }
    return 0;
}

static bool slots_right(const int64_t *slots, size_t num, bool wanted)
{
    if (!wanted || num > 1024) {
        return num == 0;
    }
    for (size_t i = 0; i < num; i++) {
        if (slots[i] < 1 || slots[i] % PARAMS_ALIGN_NUMEL != 0 || slots[i] > (int64_t)1 << 60) {
            return false;
        }
    }
    return num > 0;
}

static int32_t *empty_slots(size_t num)
{
    int32_t *slots = malloc((num + 1) * sizeof *slots);
    ASSERT(slots);
    for (size_t i = 0; i < num; i++) {
        slots[i] = -1;
    }
    return slots;
}

static int open_table(struct proof *p, struct error *err)
{
    const ParallelSpec *l = p->plan->spec->parallel->layout;
    p->num_units = family_num_units(p->plan->model->config);
    p->num_buckets = p->table.num_buckets;
    p->zero_stage = layout_shards(l) > 1 ? l->zero_stage : 0;
    p->sums_data = l->data > 1;
    p->sums_words = p->plan->mesh->num_ranks > 1;
    p->units = calloc((size_t)p->num_units, sizeof *p->units);
    p->buckets = calloc((size_t)p->num_buckets, sizeof *p->buckets);
    ASSERT(p->units && p->buckets);
    find_units(p);
    if (check_buckets(p, err) != 0) {
        return -1;
    }
    if (!slots_right(p->stage->weight_slots, p->stage->n_weight_slots, p->zero_stage >= 3) ||
        !slots_right(p->stage->grad_slots, p->stage->n_grad_slots, p->zero_stage >= 2)) {
        return refuse(err, "its slots are not those of its zero_stage");
    }
    p->weight_slots = empty_slots(p->stage->n_weight_slots);
    p->grad_slots = empty_slots(p->stage->n_grad_slots);
    return 0;
}

int proof_open(struct proof *p, const Plan *plan, struct error *err)
{
    *p = (struct proof){.plan = plan, .micro_batch = -1, .backward = true, .err = err};
    if (!is_complete(plan)) {
        return refuse(err, "incomplete");
    }
    if (!layout_right(plan) || !batch_right(plan)) {
        return refuse(err, "mesh, layout and batch don't go together");
    }
    p->stage = plan->stages[0];
    if (proof_tags(plan, err) != 0) {
        return -1;
    }
    if (p->stage->layer_begin != 0 || p->stage->n_chunks != 0 ||
        p->stage->layer_end != plan->model->config->num_hidden_layers) {
        return refuse(err, "its one stage doesn't hold the whole model");
    }
    if (params_expand(plan, 0, &p->table, err) != 0) {
        return -1;
    }
    if (open_table(p, err) != 0) {
        proof_close(p);
        return -1;
    }
    return 0;
}

void proof_close(struct proof *p)
{
    params_free(&p->table);
    free(p->units);
    free(p->buckets);
    free(p->weight_slots);
    free(p->grad_slots);
    *p = (struct proof){0};
}
