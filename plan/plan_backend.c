/* Which backend runs it. */
#include "plan/plan_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "plan/fabric.h"
#include "plan/name_table.h"
#include "proto/text.h"

static const char *type_of(const DeviceInfo *device)
{
    return device->type ? device->type : "cpu";
}

struct device_num {
    int64_t all, of_node; /* of_node: of the node that has most */
};

/* Of the nodes that the job may use; only: one of them, NULL = all. */
static struct device_num num_devices(const ClusterSpec *cluster, const ResourcesSpec *r, bool cpu,
                                     const char *only)
{
    struct name_table wanted = {0};
    struct device_num num = {0};
    bool all = !r || r->n_nodes == 0;
    for (size_t i = 0; !all && i < r->n_nodes; i++) {
        name_table_add(&wanted, r->nodes[i]);
    }
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        const NodeInfo *node = cluster->nodes[i];
        bool allowed = (all || name_table_find(&wanted, node->name) >= 0) &&
                       (!only || strcmp(node->name, only) == 0);
        int64_t num_here = 0;
        for (size_t j = 0; allowed && j < node->n_devices; j++) {
            num_here += (strcmp(type_of(node->devices[j]), "cpu") == 0) == cpu;
        }
        num.all += num_here;
        num.of_node = num_here > num.of_node ? num_here : num.of_node;
    }
    name_table_free(&wanted);
    return num;
}

/* The cluster's types, each once. */
static size_t find_types(const ClusterSpec *cluster, const char *types[FABRIC_MAX_TYPES + 1])
{
    size_t num = 0;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        for (size_t j = 0; j < cluster->nodes[i]->n_devices; j++) {
            const char *type = type_of(cluster->nodes[i]->devices[j]);
            size_t k = num > 0 && strcmp(types[num - 1], type) == 0 ? num - 1 : 0;
            while (k < num && strcmp(types[k], type) != 0) {
                k++;
            }
            if (k == num && num < FABRIC_MAX_TYPES) {
                types[num++] = type;
            }
        }
    }
    types[num] = NULL;
    return num;
}

/* Types are the cluster's; one that it hasn't is a slip, as a rule. */
static int check_type(const Plan *plan, const ClusterSpec *cluster, struct error *err)
{
    const ResourcesSpec *r = plan->spec->resources;
    const char *types[FABRIC_MAX_TYPES + 1];
    if (!r || !r->type || strcmp(r->type, "any") == 0) {
        return 0;
    }
    struct buf list = {0};
    size_t num = find_types(cluster, types);
    bool found = false;
    for (size_t i = 0; i < num; i++) {
        found = found || strcmp(types[i], r->type) == 0;
        buf_printf(&list, "%s%s", i ? ", " : "", types[i]);
    }
    /* Of one alone it is said already. */
    const char *near = num > 1 ? text_nearest(r->type, types) : NULL;
    int rc = found
                 ? 0
                 : error_set(err, ERR_FAILED_PRECONDITION,
                             "resources.type: \"%s\": the cluster has %s%s%s%s", r->type, list.data,
                             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    buf_free(&list);
    return rc;
}

/* What is reached of GPUs: those of one host, if a plan is to be started. */
static const char *gpu_node(const struct plan_input *in)
{
    return in->unbuilt ? NULL : in->gpu_node;
}

/* Devices that are given decide: a job of a version that didn't keep the word may ask. */
static bool given_gpu(const struct plan_input *in)
{
    const RankPlacement *first = in->placement[0];
    for (size_t i = 0; i < in->cluster->n_nodes; i++) {
        const NodeInfo *node = in->cluster->nodes[i];
        for (size_t j = 0;
             first->node && strcmp(node->name, first->node) == 0 && j < node->n_devices; j++) {
            if (node->devices[j]->index == first->device) {
                return strcmp(type_of(node->devices[j]), "cpu") != 0;
            }
        }
    }
    return false;
}

#define PASSED_OVER "backend cpu: "

/* Where nobody says: the devices of the type that is asked for; else GPUs where there are enough of
 * them, then CPU devices, then those that are more. GPUs that nobody can have are none where CPU
 * devices would do; drained ones are some, since they come back. */
static bool wants_gpu(Plan *plan, const struct plan_input *in, bool *passed_over)
{
    const ResourcesSpec *r = plan->spec->resources;
    if (in->placement) {
        return given_gpu(in);
    }
    if (r && r->type && strcmp(r->type, "any") != 0) {
        return strcmp(r->type, "cpu") != 0;
    }
    struct device_num gpus = num_devices(in->cluster, r, false, gpu_node(in));
    int64_t num_gpu = in->unbuilt ? gpus.all : gpus.of_node;
    int64_t num_cpu = num_devices(in->cluster, r, true, NULL).all, wanted = plan->mesh->num_ranks;
    if (num_gpu >= wanted && gpu_node(in) && num_gpu - in->num_gpus_gone < wanted &&
        num_cpu >= wanted) {
        plan_add_note(plan, PASSED_OVER "%d of the %lld GPUs of node %s are not there",
                      in->num_gpus_gone, (long long)num_gpu, in->gpu_node);
        *passed_over = true;
        return false;
    }
    return num_gpu >= wanted || (num_cpu < wanted && num_gpu > num_cpu);
}

void plan_say_gpus_would_do(Plan *plan)
{
    size_t i = 0;
    while (i < plan->n_notes && strncmp(plan->notes[i], PASSED_OVER, sizeof PASSED_OVER - 1) != 0) {
        i++;
    }
    ASSERT(i < plan->n_notes);
    char *text;
    ASSERT(asprintf(&text, "%s; resources.backend: cuda waits for them", plan->notes[i]) >= 0);
    free(plan->notes[i]);
    plan->notes[i] = text;
}

/* Ranks of CPU devices are processes of one host, which share a segment. */
static int check_size(Plan *plan, const struct plan_input *in, struct error *err)
{
    struct error why;
    if (plan->mesh->num_ranks <= PLAN_HOST_MAX_RANKS) {
        return 0;
    }
    error_set(
        &why, ERR_UNIMPLEMENTED,
        "resources.devices: %lld CPU devices: a gang of more than %d of them is not built yet",
        (long long)plan->mesh->num_ranks, PLAN_HOST_MAX_RANKS);
    if (!in->unbuilt) {
        *err = why;
        return -1;
    }
    plan_add_unbuilt(plan, why.text);
    return 0;
}

/* As a rule a job file says neither: the plan's spec says what became of it, and the job keeps
 * that, so that no later attempt computes otherwise. */
static void keep(ProtobufCMessage *message, const char *field, const char *value, const char *word)
{
    if (strcmp(value, "auto") == 0) {
        int rc = text_set(message, field, word, NULL);
        ASSERT(rc == 0);
    }
}

int plan_set_backend(Plan *plan, const struct plan_input *in, bool *passed_over, struct error *err)
{
    ResourcesSpec *r = plan->spec->resources;
    TrainingSpec *t = plan->spec->training;
    bool fp64 = strcmp(t->precision, "fp64") == 0;
    const char *word = r && r->backend ? r->backend : "auto";
    if (!in->placement && check_type(plan, in->cluster, err) != 0) {
        return -1;
    }
    if (strcmp(word, "auto") == 0) {
        word = fp64 ? "ref" : wants_gpu(plan, in, passed_over) ? "cuda" : "cpu";
    }
    if (fp64 && strcmp(word, "ref") != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "resources.backend: training.precision fp64 needs ref, not %s", word);
    }
    bool cuda = strcmp(word, "cuda") == 0;
    plan->backend = strdup(word);
    ASSERT(plan->backend);
    keep(&t->base, "precision", t->precision, cuda ? "bf16" : "fp32");
    if (r && r->backend) {
        keep(&r->base, "backend", r->backend, plan->backend);
    }
    return cuda ? 0 : check_size(plan, in, err);
}
