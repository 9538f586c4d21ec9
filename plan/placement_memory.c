/* Does what the ranks need fit the memory there is? */
#include <stdbool.h>
#include <stdio.h>

#include "plan/memory.h"
#include "plan/name_table.h"
#include "plan/placement.h"

static double gb(int64_t bytes)
{
    return (double)bytes / 1e9;
}

static int refuse_memory(const Plan *plan, const char *what, int64_t need, int64_t have,
                         struct error *err)
{
    const MemoryEstimate *m = plan->memory;
    int64_t state = m->params_bytes + m->grads_bytes + m->optimizer_bytes;
    const TrainingSpec *t = plan->spec->training;
    const char *mend = "a smaller training.seq_len lowers it";
    /* A plan that is only looked at may use what can't be started yet. */
    bool any = plan->n_unbuilt > 0;
    if (m->snapshot_bytes >= m->total_bytes / 4) {
        mend = "checkpoint.async: false lowers it";
    } else if (any && state >= m->total_bytes / 2) {
        mend = "parallel.zero_stage, or more tensor or pipeline ranks, lower it";
    } else if (any) {
        mend = "training.recompute, sequence_parallel or more context ranks lower it";
    } else if (state >= m->total_bytes / 2) {
        mend = m->optimizer_bytes > 0
                   ? "a smaller model, or training.optimizer.name: sgd, lowers it"
                   : "a smaller model lowers it";
    } else if (t->micro_batch_size > 1) {
        mend = "a smaller training.micro_batch_size lowers it";
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "memory: %s needs %.2f GB and has %.2f: %.2f GB too little (a rank: weights, "
                     "gradients and optimizer %.2f, copy for saving %.2f, activations %.2f, logits "
                     "%.2f, gathered %.2f, overhead %.2f); %s",
                     what, gb(need), gb(have), gb(need - have), gb(state), gb(m->snapshot_bytes),
                     gb(m->activations_bytes), gb(m->logits_bytes), gb(m->gathered_bytes),
                     gb(m->overhead_bytes), mend);
}

/* Devices stand at the place of their index, as a rule. */
static const DeviceInfo *find_device(const NodeInfo *node, int32_t index)
{
    if (index >= 0 && (size_t)index < node->n_devices && node->devices[index]->index == index) {
        return node->devices[index];
    }
    for (size_t i = 0; i < node->n_devices; i++) {
        if (node->devices[i]->index == index) {
            return node->devices[i];
        }
    }
    return NULL;
}

static int check_rank(const Plan *plan, const RankPlacement *p, const NodeInfo *node,
                      struct error *err)
{
    int64_t total = plan->memory->total_bytes, together = 0;
    const DeviceInfo *d = find_device(node, p->device);
    char what[192];
    ASSERT(d);
    if (d->mem_bytes > 0 && total > d->mem_bytes) {
        snprintf(what, sizeof what, "device %d of node %.100s", p->device, p->node);
        return refuse_memory(plan, what, total, d->mem_bytes, err);
    }
    if (p->local_rank == 0 && node->mem_bytes > 0 &&
        (__builtin_mul_overflow(total, (int64_t)p->local_ranks, &together) ||
         together > node->mem_bytes)) {
        snprintf(what, sizeof what, "node %.100s with %d ranks", p->node, p->local_ranks);
        return refuse_memory(plan, what, together > 0 ? together : total, node->mem_bytes, err);
    }
    return 0;
}

int placement_check_memory(const Plan *plan, const ClusterSpec *cluster, struct error *err)
{
    if (plan->memory->total_bytes >= MEMORY_MAX_BYTES) {
        return refuse_memory(plan, "a rank", plan->memory->total_bytes, 0, err);
    }
    struct name_table names = {0};
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        name_table_add(&names, cluster->nodes[i]->name);
    }
    int rc = 0;
    for (size_t i = 0; i < plan->n_placement && rc == 0; i++) {
        const RankPlacement *p = plan->placement[i];
        rc = check_rank(plan, p, cluster->nodes[name_table_find(&names, p->node)], err);
    }
    name_table_free(&names);
    return rc;
}
