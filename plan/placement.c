#include "plan/placement.h"

#include <stdint.h>
#include <stdio.h>

#include <stdlib.h>
#include <string.h>

#include "plan/memory.h"

static const NodeInfo *find_node(const ClusterSpec *cluster, const char *name)
{
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        if (cluster->nodes[i]->name && strcmp(cluster->nodes[i]->name, name) == 0) {
            return cluster->nodes[i];
        }
    }
    return NULL;
}

static const DeviceInfo *find_device(const NodeInfo *node, int32_t index)
{
    for (size_t i = 0; i < node->n_devices; i++) {
        if (node->devices[i]->index == index) {
            return node->devices[i];
        }
    }
    return NULL;
}

/* ---- first free devices ---- */

static bool node_suits(const NodeInfo *node, const ResourcesSpec *r)
{
    if (!node->name) {
        return false;
    }
    for (size_t i = 0; r && i < r->n_nodes; i++) {
        if (strcmp(r->nodes[i], node->name) == 0) {
            return true;
        }
    }
    return !r || r->n_nodes == 0;
}

static bool device_suits(const DeviceInfo *d, const ResourcesSpec *r)
{
    return !r || !r->type || strcmp(r->type, "any") == 0 ||
           (d->type && strcmp(r->type, d->type) == 0);
}

static RankPlacement *placement_new(const char *node, int32_t device)
{
    RankPlacement *p = malloc(sizeof *p);
    ASSERT(p);
    rank_placement__init(p);
    p->node = strdup(node);
    ASSERT(p->node);
    p->has_device = 1;
    p->device = device;
    return p;
}

/* What of the cluster a job may use at all, and what of that is free. */
struct supply {
    int64_t suiting, free;
};

static struct supply take_free(Plan *plan, const ClusterSpec *cluster, const ResourcesSpec *r)
{
    struct supply s = {0};
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        const NodeInfo *node = cluster->nodes[i];
        if (!node_suits(node, r)) {
            continue;
        }
        for (size_t j = 0; j < node->n_devices; j++) {
            const DeviceInfo *d = node->devices[j];
            if (!device_suits(d, r)) {
                continue;
            }
            s.suiting++;
            if (d->drained || d->job_id != 0) {
                continue;
            }
            s.free++;
            if ((int64_t)plan->n_placement < plan->mesh->num_ranks) {
                plan->placement[plan->n_placement++] = placement_new(node->name, d->index);
            }
        }
    }
    return s;
}

/* The largest number of data ranks up to max among which the batch can be shared. */
static int64_t nearest_data(const TrainingSpec *t, int64_t max)
{
    for (int64_t d = max; d > 0; d--) {
        if (t->global_batch_size % (d * t->micro_batch_size) == 0) {
            return d;
        }
    }
    return 0;
}

static int refuse_supply(const Plan *plan, struct supply s, struct error *err)
{
    const ResourcesSpec *r = plan->spec->resources;
    int64_t wanted = plan->mesh->num_ranks;
    char where[160] = "the cluster";
    if (r && r->n_nodes > 0) {
        snprintf(where, sizeof where, "node %.60s%s", r->nodes[0],
                 r->n_nodes > 1 ? " and the others named" : "");
    }
    bool any = !r || !r->type || strcmp(r->type, "any") == 0;
    const char *type = any ? "" : r->type;
    if (s.suiting >= wanted) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "resources.devices: %lld wanted, %s has %lld%s%s but only %lld of them "
                         "are free",
                         (long long)wanted, where, (long long)s.suiting, any ? "" : " of type ",
                         type, (long long)s.free);
    }
    int64_t near = nearest_data(plan->spec->training, s.suiting);
    if (near == 0) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "resources.devices: %lld wanted, %s has %lld%s%s", (long long)wanted,
                         where, (long long)s.suiting, any ? "" : " of type ", type);
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "resources.devices: %lld wanted, %s has %lld%s%s; parallel.data: %lld fits",
                     (long long)wanted, where, (long long)s.suiting, any ? "" : " of type ", type,
                     (long long)near);
}

/* ---- given devices ---- */

static int take_given(Plan *plan, const struct plan_input *in, struct error *err)
{
    for (int64_t i = 0; i < plan->mesh->num_ranks; i++) {
        const RankPlacement *p = in->placement[i];
        const NodeInfo *node = p->node ? find_node(in->cluster, p->node) : NULL;
        if (!node || !find_device(node, p->device)) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "placement: device %d of node %s is not in the cluster", p->device,
                             p->node ? p->node : "?");
        }
        plan->placement[plan->n_placement++] = placement_new(p->node, p->device);
    }
    return 0;
}

/* ---- what follows ---- */

/* By node, then by rank (which local_rank holds while they are counted). */
static int compare_places(const void *a, const void *b)
{
    const RankPlacement *x = *(RankPlacement *const *)a, *y = *(RankPlacement *const *)b;
    int by_name = strcmp(x->node, y->node);
    return by_name ? by_name : (x->local_rank > y->local_rank) - (x->local_rank < y->local_rank);
}

/* Counts ranks by node; works through runs of a sorted view, so that 16,384 ranks are nothing. */
static void count_local(Plan *plan)
{
    size_t n = plan->n_placement;
    RankPlacement **view = calloc(n, sizeof *view);
    ASSERT(view);
    for (size_t i = 0; i < n; i++) {
        view[i] = plan->placement[i];
        view[i]->local_rank = (int32_t)i;
    }
    qsort(view, n, sizeof *view, compare_places);
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && strcmp(view[end]->node, view[i]->node) == 0) {
            end++;
        }
        for (size_t j = i; j < end; j++) {
            view[j]->has_local_rank = view[j]->has_local_ranks = 1;
            view[j]->local_rank = (int32_t)(j - i);
            view[j]->local_ranks = (int32_t)(end - i);
        }
        i = end;
    }
    free(view);
}

static double device_peak(const DeviceInfo *d, const char *precision)
{
    if (strcmp(precision, "fp64") == 0) {
        return d->peak_flops_fp64;
    }
    return strcmp(precision, "bf16") == 0 ? d->peak_flops_bf16 : d->peak_flops_fp32;
}

static void set_threads_and_peak(Plan *plan, const ClusterSpec *cluster)
{
    int32_t threads = INT32_MAX;
    for (size_t i = 0; i < plan->n_placement; i++) {
        const RankPlacement *p = plan->placement[i];
        if (p->local_rank != 0) {
            continue;
        }
        const NodeInfo *node = find_node(cluster, p->node);
        int32_t share = node->cores / p->local_ranks;
        threads = share < threads ? share : threads;
    }
    const NodeInfo *first = find_node(cluster, plan->placement[0]->node);
    const DeviceInfo *device = find_device(first, plan->placement[0]->device);
    plan->has_threads_per_rank = 1;
    plan->threads_per_rank = threads < 1 ? 1 : threads;
    plan->has_peak_flops = 1;
    plan->peak_flops = device_peak(device, plan->spec->training->precision);
    /* A CPU device is measured with one thread. */
    if (device->type && strcmp(device->type, "cpu") == 0) {
        plan->peak_flops *= plan->threads_per_rank;
    }
}

int placement_build(Plan *plan, const struct plan_input *in, struct error *err)
{
    plan->placement = calloc((size_t)plan->mesh->num_ranks, sizeof(RankPlacement *));
    ASSERT(plan->placement);
    if (in->placement) {
        if (take_given(plan, in, err) != 0) {
            return -1;
        }
    } else {
        struct supply s = take_free(plan, in->cluster, plan->spec->resources);
        if (s.free < plan->mesh->num_ranks) {
            return refuse_supply(plan, s, err);
        }
    }
    count_local(plan);
    set_threads_and_peak(plan, in->cluster);
    return 0;
}

/* ---- memory ---- */

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
    if (m->snapshot_bytes >= m->total_bytes / 4) {
        mend = "checkpoint.async: false lowers it";
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
                     "%.2f, overhead %.2f); %s",
                     what, gb(need), gb(have), gb(need - have), gb(state), gb(m->snapshot_bytes),
                     gb(m->activations_bytes), gb(m->logits_bytes), gb(m->overhead_bytes), mend);
}

int placement_check_memory(const Plan *plan, const ClusterSpec *cluster, struct error *err)
{
    int64_t total = plan->memory->total_bytes;
    if (total >= MEMORY_MAX_BYTES) {
        return refuse_memory(plan, "a rank", total, 0, err);
    }
    for (size_t i = 0; i < plan->n_placement; i++) {
        const RankPlacement *p = plan->placement[i];
        const NodeInfo *node = find_node(cluster, p->node);
        const DeviceInfo *d = find_device(node, p->device);
        char what[192];
        if (d->mem_bytes > 0 && total > d->mem_bytes) {
            snprintf(what, sizeof what, "device %d of node %.100s", p->device, p->node);
            return refuse_memory(plan, what, total, d->mem_bytes, err);
        }
        int64_t together = 0;
        if (p->local_rank == 0 && node->mem_bytes > 0 &&
            (__builtin_mul_overflow(total, (int64_t)p->local_ranks, &together) ||
             together > node->mem_bytes)) {
            snprintf(what, sizeof what, "node %.100s with %d ranks", p->node, p->local_ranks);
            return refuse_memory(plan, what, together > 0 ? together : total, node->mem_bytes, err);
        }
    }
    return 0;
}
