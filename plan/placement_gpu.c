/* What a gang on GPUs has to keep to besides: cards that its precision runs on, of one node, on the
 * host that is reached. */
#include <string.h>

#include "plan/placement.h"
#include "plan/plan_parts.h"

/* GPUs of the job's types that are too old for its precision; NULL: none is. */
static const struct fabric_type *too_old(const struct fabric *f, const struct place_request *r)
{
    for (int32_t i = 0; i < f->num_types; i++) {
        const struct fabric_type *t = &f->types[i];
        if (t->capability > 0 && t->capability < r->capability &&
            (strcmp(r->type, "any") == 0 || strcmp(r->type, t->name) == 0)) {
            return t;
        }
    }
    return NULL;
}

int placement_refuse_old(const struct free_map *m, const struct place_request *r, int32_t *devices,
                         struct error *err)
{
    const struct fabric_type *t = too_old(free_map_fabric(m), r);
    struct place_request any = *r;
    any.capability = 0;
    if (!t || place_find(m, &any, devices, NULL, NULL) == PLACE_NEVER) {
        return 0;
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "training.precision: bf16 needs GPUs of compute capability 8.0 (A100) or "
                     "newer, type %s has %d.%d; use fp32",
                     t->name, t->capability / 10, t->capability % 10);
}

static bool names_node(const struct place_request *r, const char *node)
{
    for (size_t i = 0; i < r->num_nodes; i++) {
        if (strcmp(r->nodes[i], node) == 0) {
            return true;
        }
    }
    return r->num_nodes == 0;
}

/* A job that is to be started on GPUs finds them on one host: the one that is reached, if that is
 * known. */
int placement_use_gpu_node(struct place_request *r, const struct plan_input *in, struct error *err)
{
    r->one_node = r->gpu_only && !in->unbuilt;
    if (!r->one_node || !in->gpu_node) {
        return 0;
    }
    if (!names_node(r, in->gpu_node)) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "resources.nodes: GPUs of other hosts than %.64s are not reached yet",
                         in->gpu_node);
    }
    r->nodes = &in->gpu_node;
    r->num_nodes = 1;
    return 0;
}

/* Given devices, and those of a plan that is only looked at, need not be what the job can use. */
int placement_check_gpus(Plan *plan, const struct plan_input *in, const struct fabric *f,
                         const int32_t *devices, struct error *err)
{
    const struct fabric_device *first = &f->devices[devices[0]];
    bool cuda = strcmp(plan->backend, "cuda") == 0;
    struct error why;
    if (f->types[first->type].is_cpu == cuda) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "placement: device %d of node %s is of type %s, backend %s runs on %s",
                         first->index, f->nodes[first->node].name, f->types[first->type].name,
                         plan->backend, cuda ? "GPUs" : "type cpu");
    }
    for (int64_t i = 1; cuda && i < plan->mesh->num_ranks; i++) {
        if (f->devices[devices[i]].node != first->node) {
            error_set(&why, ERR_UNIMPLEMENTED,
                      "resources.devices: %lld GPUs on more than one node: a gang on more than one "
                      "host is not built yet",
                      (long long)plan->mesh->num_ranks);
            if (!in->unbuilt) {
                *err = why;
                return -1;
            }
            plan_add_unbuilt(plan, why.text);
            return 0;
        }
    }
    return 0;
}
