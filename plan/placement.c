#include "plan/placement.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/device_types.h"
#include "proto/text.h"

/* ---- what is asked for ---- */

static int32_t as_size(int64_t size)
{
    return size > INT32_MAX ? INT32_MAX : (int32_t)size;
}

bool placement_request(struct place_request *out, const JobSpec *spec, const char *backend,
                       int64_t mem_bytes)
{
    const ResourcesSpec *r = spec->resources;
    if (!spec->parallel || spec->parallel->choice_case != PARALLEL_CHOICE__CHOICE_LAYOUT) {
        return false;
    }
    const ParallelSpec *l = spec->parallel->layout;
    *out = (struct place_request){
        .data = as_size(l->data),
        .pipeline = as_size(l->pipeline),
        .context = as_size(l->context),
        .tensor = as_size(l->tensor),
        .expert = as_size(l->expert),
        .shard = as_size(l->shard_size),
        .type = r && r->type ? r->type : "any",
        .nodes = r ? (const char *const *)r->nodes : NULL,
        .num_nodes = r ? r->n_nodes : 0,
        .mem_bytes = mem_bytes,
    };
    out->gpu_only = backend && strcmp(backend, "cuda") == 0;
    bool bf16 = spec->training && strcmp(spec->training->precision, "bf16") == 0;
    out->capability = out->gpu_only && bf16 ? DEVICE_TYPES_BF16 : 0;
    out->cpu_only = backend && (strcmp(backend, "cpu") == 0 || strcmp(backend, "ref") == 0);
    return true;
}

/* ---- no place ---- */

static void where_words(const struct place_request *r, char *out, size_t size)
{
    if (r->num_nodes == 0) {
        snprintf(out, size, "the cluster");
    } else {
        snprintf(out, size, "node %.60s%s", r->nodes[0],
                 r->num_nodes > 1 ? " and the others named" : "");
    }
}

/* " of type h100", " of one type", " of type cpu (resources.backend: cpu)" or nothing. */
static void type_words(const struct fabric *f, const struct place_request *r, const Plan *plan,
                       char *out, size_t size)
{
    out[0] = 0;
    bool any = strcmp(r->type, "any") == 0;
    int32_t type = any ? -1 : fabric_find_type(f, r->type);
    if (!any) {
        snprintf(out, size, " of type %.60s", r->type);
        if (type >= 0 && (f->types[type].is_cpu ? r->gpu_only : r->cpu_only)) {
            snprintf(out, size, " of type %.60s that resources.backend %.20s runs on", r->type,
                     plan->backend);
        }
    } else if (r->cpu_only && !(f->num_types == 1 && f->types[0].is_cpu)) {
        snprintf(out, size, " of type cpu, all that backend %.20s runs on", plan->backend);
    } else if (f->num_types > 1) {
        snprintf(out, size, " of one type%s", r->gpu_only ? " of GPU" : "");
    }
}

static bool has_gpus(const struct fabric *f)
{
    for (int32_t i = 0; i < f->num_types; i++) {
        if (!f->types[i].is_cpu) {
            return true;
        }
    }
    return false;
}

static int refuse(const Plan *plan, const struct fabric *f, const struct place_request *r,
                  enum place_result result, const struct place_lack *lack, struct error *err)
{
    char where[160], type[160], near[96] = "", words[192];
    long long wanted = (long long)plan->mesh->num_ranks;
    where_words(r, where, sizeof where);
    type_words(f, r, plan, type, sizeof type);
    struct place_lack of_any = *lack; /* the type is said in front */
    of_any.type = NULL;
    place_lack_words(&of_any, result, words, sizeof words);
    if (result == PLACE_FEW) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "resources.devices: %lld wanted, %s has %d%s but only %d of them %s free",
                         wanted, where, lack->total, type, lack->free,
                         lack->free == 1 ? "is" : "are");
    }
    if (result == PLACE_FRAGMENTED) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "resources.devices: %lld wanted, %s has %d%s, %d of them are free, but %s",
                         wanted, where, lack->total, type, lack->free, words);
    }
    if (r->gpu_only && lack->total == 0 && !has_gpus(f)) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "resources.backend: %.20s: %lld GPU%s wanted, %s has none; use auto or "
                         "cpu, or a cluster file that names GPUs",
                         plan->backend, wanted, wanted == 1 ? "" : "s", where);
    }
    bool any_near = place_nearest(f, r, plan->spec, near, sizeof near);
    const char *before = any_near ? "; " : "", *after = any_near ? " fits" : "";
    if (lack->total < lack->need) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "resources.devices: %lld wanted, %s has %d%s%s%s%s", wanted, where,
                         lack->total, type, before, near, after);
    }
    if (lack->one_node && lack->node_total < lack->need) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "resources.devices: %lld GPUs%s wanted, no node of %s has more than %d: a "
                         "gang on more than one host is not built yet%s%s%s",
                         wanted, r->type && strcmp(r->type, "any") != 0 ? type : "", where,
                         lack->node_total, before, near, after);
    }
    return error_set(
        err, ERR_FAILED_PRECONDITION,
        "parallel.tensor: %d x %d devices wanted, each %d in one fast domain; %s%s has "
        "room for %d x %d%s%s%s%s",
        lack->num_groups, lack->group, lack->group, lack->one_node ? "a node of " : "", where,
        lack->total_groups, lack->group, type, before, near, after);
}

/* ---- which devices ---- */

/* Devices of the cluster that are neither held nor drained. */
static struct free_map *free_devices(const struct fabric *f, const ClusterSpec *cluster)
{
    struct free_map *m = free_map_new(f);
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        const NodeInfo *node = cluster->nodes[i];
        for (size_t j = 0; j < node->n_devices; j++) {
            const DeviceInfo *d = node->devices[j];
            int32_t device =
                d->drained || d->job_id != 0 ? fabric_find_device(f, node->name, d->index) : -1;
            if (device >= 0) {
                free_map_take(m, device);
            }
        }
    }
    return m;
}

static int use_given(const struct plan_input *in, const struct fabric *f, int32_t num_ranks,
                     int32_t *devices, struct error *err)
{
    for (int32_t i = 0; i < num_ranks; i++) {
        const RankPlacement *p = in->placement[i];
        devices[i] = p->node ? fabric_find_device(f, p->node, p->device) : -1;
        if (devices[i] < 0) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "placement: device %d of node %s is not in the cluster", p->device,
                             p->node ? p->node : "?");
        }
    }
    return 0;
}

/* A node that the cluster hasn't is a slip; of a job that waits it may come back. */
static int check_nodes(const struct fabric *f, const struct place_request *r, struct error *err)
{
    for (size_t i = 0; i < r->num_nodes; i++) {
        if (fabric_find_node(f, r->nodes[i]) >= 0) {
            continue;
        }
        const char **names = calloc((size_t)f->num_nodes + 1, sizeof *names);
        ASSERT(names);
        for (int32_t n = 0; n < f->num_nodes; n++) {
            names[n] = f->nodes[n].name;
        }
        const char *near = text_nearest(r->nodes[i], names);
        free(names);
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "resources.nodes: no node is called %.64s%s%s%s", r->nodes[i],
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    return 0;
}

static int choose(Plan *plan, const struct fabric *f, const struct free_map *m,
                  struct place_request *r, int32_t *devices, struct error *err)
{
    struct place_lack lack;
    enum place_result result = place_find(m, r, devices, NULL, &lack);
    if (result != PLACE_OK && r->mem_bytes > 0) {
        /* That memory is short is said in other words, by placement_check_memory. */
        r->mem_bytes = 0;
        result = place_find(m, r, devices, NULL, &lack);
    }
    if (result == PLACE_NEVER && placement_refuse_old(m, r, devices, err) != 0) {
        return -1;
    }
    return result == PLACE_OK ? 0 : refuse(plan, f, r, result, &lack, err);
}

/* ---- what follows ---- */

static RankPlacement *place_new(const char *node, int32_t device)
{
    RankPlacement *p = malloc(sizeof *p);
    ASSERT(p);
    rank_placement__init(p);
    p->node = strdup(node);
    ASSERT(p->node);
    p->has_device = p->has_local_rank = p->has_local_ranks = 1;
    p->device = device;
    return p;
}

/* plan->placement; ranks of a node are counted in their order. */
static void set_places(Plan *plan, const struct fabric *f, const int32_t *devices)
{
    size_t num = (size_t)plan->mesh->num_ranks;
    int32_t *on_node = calloc((size_t)f->num_nodes, sizeof *on_node);
    plan->placement = calloc(num, sizeof(RankPlacement *));
    ASSERT(on_node && plan->placement);
    for (size_t i = 0; i < num; i++) {
        const struct fabric_device *d = &f->devices[devices[i]];
        plan->placement[i] = place_new(f->nodes[d->node].name, d->index);
        plan->placement[i]->local_rank = on_node[d->node]++;
    }
    plan->n_placement = num;
    for (size_t i = 0; i < num; i++) {
        plan->placement[i]->local_ranks = on_node[f->devices[devices[i]].node];
    }
    free(on_node);
}

static double info_peak(const DeviceInfo *d, const char *precision)
{
    if (strcmp(precision, "fp64") == 0) {
        return d->peak_flops_fp64;
    }
    /* CPUs compute in fp32 then, too. */
    bool cpu = !d->type || strcmp(d->type, "cpu") == 0;
    bool bf16 = strcmp(precision, "bf16") == 0 && !(cpu && d->peak_flops_bf16 <= 0);
    return bf16 ? d->peak_flops_bf16 : d->peak_flops_fp32;
}

static double type_peak(const struct fabric_type *t, const char *precision)
{
    if (strcmp(precision, "fp64") == 0) {
        return t->peak_fp64;
    }
    return strcmp(precision, "bf16") == 0 ? t->peak_bf16 : t->peak_fp32;
}

static const DeviceInfo *find_info(const NodeInfo *node, int32_t index)
{
    for (size_t i = 0; i < node->n_devices; i++) {
        if (node->devices[i]->index == index) {
            return node->devices[i];
        }
    }
    return NULL;
}

/* Threads: the least over all nodes; no more than the host has where one runs them all. Peak: the
 * first device's, as measured, else its type's. */
static void set_threads_and_peak(Plan *plan, const struct plan_input *in, const struct fabric *f,
                                 const int32_t *devices)
{
    const struct fabric_device *first = &f->devices[devices[0]];
    const struct fabric_type *type = &f->types[first->type];
    const char *precision = plan->spec->training->precision;
    int32_t threads = INT32_MAX;
    int32_t *ranks = calloc((size_t)f->num_nodes, sizeof *ranks);
    ASSERT(ranks);
    for (size_t i = 0; i < plan->n_placement; i++) {
        ranks[f->devices[devices[i]].node]++;
    }
    double peak = 0;
    for (int32_t i = 0; i < f->num_nodes; i++) {
        const NodeInfo *node = in->cluster->nodes[i];
        int32_t n = f->node_of_spec[i];
        if (ranks[n] > 0 && node->cores / ranks[n] < threads) {
            threads = node->cores / ranks[n];
        }
        if (n == first->node) {
            const DeviceInfo *info = find_info(node, first->index);
            peak = info ? info_peak(info, precision) : 0;
        }
    }
    free(ranks);
    int32_t shared = in->host_cores / (int32_t)plan->n_placement;
    if (type->is_cpu && in->host_cores > 0 && shared < threads) {
        threads = shared;
    }
    plan->has_threads_per_rank = plan->has_peak_flops = 1;
    plan->threads_per_rank = threads < 1 ? 1 : threads;
    plan->peak_flops = peak > 0 || type->is_cpu ? peak : type_peak(type, precision);
    /* A CPU device is measured with one thread. */
    if (type->is_cpu) {
        plan->peak_flops *= plan->threads_per_rank;
    }
}

static int set_score(Plan *plan, const struct free_map *m, const struct place_request *r,
                     const int32_t *devices, struct error *err)
{
    plan->score = malloc(sizeof *plan->score);
    ASSERT(plan->score);
    placement_score__init(plan->score);
    if (!place_score(free_map_fabric(m), r, devices, m, plan->score)) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "placement: devices of two types, or a tensor group in two fast domains");
    }
    return 0;
}

int placement_build(Plan *plan, const struct plan_input *in, const struct fabric *f,
                    struct error *err)
{
    struct place_request r;
    int64_t mem_bytes = plan->memory ? plan->memory->total_bytes : 0;
    if (!placement_request(&r, plan->spec, plan->backend, mem_bytes)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: the job has no layout");
    }
    if ((in->unbuilt && check_nodes(f, &r, err) != 0) || placement_use_gpu_node(&r, in, err) != 0) {
        return -1;
    }
    int32_t num_ranks = (int32_t)plan->mesh->num_ranks;
    int32_t *devices = calloc((size_t)num_ranks, sizeof *devices);
    ASSERT(devices);
    struct free_map *m = free_devices(f, in->cluster);
    int rc = in->placement ? use_given(in, f, num_ranks, devices, err)
                           : choose(plan, f, m, &r, devices, err);
    if (rc == 0) {
        rc = placement_check_gpus(plan, in, f, devices, err);
    }
    if (rc == 0) {
        rc = set_score(plan, m, &r, devices, err);
    }
    if (rc == 0) {
        set_places(plan, f, devices);
        set_threads_and_peak(plan, in, f, devices);
        placement_set_groups(plan, f, &r, devices);
    }
    free_map_free(m);
    free(devices);
    return rc;
}
