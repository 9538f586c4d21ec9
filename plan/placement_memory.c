/* Does what the ranks need fit the memory there is? */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "plan/layout_rules.h"
#include "plan/memory.h"
#include "plan/placement.h"

static double gb(int64_t bytes)
{
    return (double)bytes / 1e9;
}

/* ---- what lowers it: only what does, and isn't used already ---- */

#define MENDS_MAX 12

struct mends {
    const char *words[MENDS_MAX];
    size_t num;
};

static void add_mend(struct mends *list, bool helps, const char *words)
{
    if (helps && list->num < MENDS_MAX) {
        list->words[list->num++] = words;
    }
}

/* Only a plan that is looked at may use what can't be started yet. */
static void add_layouts(struct mends *list, const Plan *plan, bool state, bool activations)
{
    const ParallelSpec *l = plan->spec->parallel->layout;
    const ModelConfig *c = plan->model->config;
    const RecomputeSpec *r = plan->spec->training->recompute;
    bool alone = layout_schedule_is(l, "pipedream"); /* goes with no other axis */
    bool full = r && strcmp(r->mode, "full") == 0;
    bool sharing = !alone && l->data > 1, any = plan->n_unbuilt > 0;
    add_mend(list, state && sharing && l->zero_stage == 0, "parallel.zero_stage");
    add_mend(list, state && sharing && (l->zero_stage == 1 || l->zero_stage == 2),
             "a higher parallel.zero_stage");
    add_mend(list, state && l->zero_stage > 0 && layout_shards(l) < l->data,
             "a larger parallel.shard_size");
    add_mend(list, state && !alone && l->tensor < c->num_attention_heads, "more tensor ranks");
    add_mend(list, any && state && l->pipeline < c->num_hidden_layers, "more pipeline ranks");
    add_mend(list, any && activations && !full, "training.recompute.mode: full");
    add_mend(list, activations && !l->sequence_parallel && l->tensor > 1,
             "parallel.sequence_parallel: true");
    add_mend(list, any && activations && layout_schedule_is(l, "gpipe"), "parallel.schedule: 1f1b");
    add_mend(list, any && activations && !alone, "more context ranks");
}

static void find_mends(struct mends *list, const Plan *plan)
{
    const MemoryEstimate *m = plan->memory;
    const TrainingSpec *t = plan->spec->training;
    int64_t part = m->total_bytes / 8;
    bool state = m->params_bytes + m->grads_bytes + m->optimizer_bytes >= part;
    bool activations = m->activations_bytes + m->logits_bytes + m->backward_bytes >= part;
    bool copies = m->host_bytes == 0 && m->snapshot_bytes >= part;
    add_mend(list, copies, "checkpoint.async: false");
    add_layouts(list, plan, state, activations);
    if (plan->n_unbuilt == 0) {
        add_mend(list, state, "a smaller model");
        add_mend(list, state && strcmp(t->optimizer->name, "sgd") != 0,
                 "training.optimizer.name: sgd");
    }
    add_mend(list, activations && t->micro_batch_size > 1, "a smaller training.micro_batch_size");
    add_mend(list, list->num == 0 || (activations && t->micro_batch_size == 1),
             "a smaller training.seq_len");
}

/* "a, b or c lower it" */
static void mend_words(const Plan *plan, struct buf *out)
{
    struct mends list = {0};
    find_mends(&list, plan);
    for (size_t i = 0; i < list.num; i++) {
        buf_puts(out, i == 0 ? "" : i + 1 < list.num ? ", " : " or ");
        buf_puts(out, list.words[i]);
    }
    buf_puts(out, list.num == 1 ? " lowers it" : " lower it");
}

/* ---- does it fit? ---- */

static int refuse_memory(const Plan *plan, const char *what, int64_t need, int64_t have,
                         struct error *err)
{
    const MemoryEstimate *m = plan->memory;
    const struct {
        const char *name;
        int64_t bytes;
    } parts[] = {
        {"weights, gradients and optimizer", m->params_bytes + m->grads_bytes + m->optimizer_bytes},
        {"copy for saving", m->host_bytes > 0 ? 0 : m->snapshot_bytes},
        {"activations", m->activations_bytes},
        {"logits", m->logits_bytes},
        {"gathered", m->gathered_bytes},
        {"backward pass", m->backward_bytes},
        {"exchange", m->exchange_bytes},
        {"workspace", m->workspace_bytes},
        {"overhead", m->overhead_bytes},
    };
    struct buf list = {0}, mend = {0};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes > m->total_bytes / 1000) { /* what matters */
            buf_printf(&list, "%s%s %.2f", list.len ? ", " : "", parts[i].name, gb(parts[i].bytes));
        }
    }
    mend_words(plan, &mend);
    int rc =
        error_set(err, ERR_FAILED_PRECONDITION,
                  "memory: %s needs %.2f GB and has %.2f: %.2f GB too little (a rank: %s); %s",
                  what, gb(need), gb(have), gb(need - have), list.len ? list.data : "", mend.data);
    buf_free(&list);
    buf_free(&mend);
    return rc;
}

/* The memory of nodes, by their number; freed by the caller. */
static int64_t *node_memory(const struct fabric *f)
{
    int64_t *have = calloc((size_t)f->num_nodes + 1, sizeof *have);
    ASSERT(have);
    for (size_t i = 0; i < f->spec->n_nodes; i++) {
        have[f->node_of_spec[i]] = f->spec->nodes[i]->mem_bytes;
    }
    return have;
}

static int check_rank(const Plan *plan, const RankPlacement *p, const struct fabric *f,
                      const int64_t *node_bytes, struct error *err)
{
    int64_t total = plan->memory->total_bytes, together = 0;
    int32_t device = fabric_find_device(f, p->node, p->device);
    char what[192];
    ASSERT(device >= 0);
    const struct fabric_device *d = &f->devices[device];
    if (d->mem_bytes > 0 && total > d->mem_bytes) {
        snprintf(what, sizeof what, "device %d of node %.100s", p->device, p->node);
        return refuse_memory(plan, what, total, d->mem_bytes, err);
    }
    /* A GPU has its own: the node's is the host's, where checkpoints are copied to. */
    bool is_cpu = f->types[d->type].is_cpu;
    int64_t have = node_bytes[d->node], each = is_cpu ? total : plan->memory->snapshot_bytes;
    bool fits =
        p->local_rank != 0 || have <= 0 ||
        (!__builtin_mul_overflow(each, (int64_t)p->local_ranks, &together) && together <= have);
    if (fits) {
        return 0;
    }
    if (!is_cpu) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "memory: node %.100s has %.2f GB, the copies of its %d ranks' state that "
                         "are saved need %.2f; parallel.zero_stage lowers it",
                         p->node, gb(have), p->local_ranks, gb(together));
    }
    snprintf(what, sizeof what, "node %.100s with %d ranks", p->node, p->local_ranks);
    return refuse_memory(plan, what, together > 0 ? together : total, have, err);
}

int placement_check_memory(const Plan *plan, const struct fabric *f, struct error *err)
{
    if (plan->memory->total_bytes >= MEMORY_MAX_BYTES) {
        return refuse_memory(plan, "a rank", plan->memory->total_bytes, 0, err);
    }
    int64_t *node_bytes = node_memory(f);
    int rc = 0;
    for (size_t i = 0; i < plan->n_placement && rc == 0; i++) {
        rc = check_rank(plan, plan->placement[i], f, node_bytes, err);
    }
    free(node_bytes);
    return rc;
}
