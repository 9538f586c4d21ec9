/* Which backend runs it. */
#include "plan/plan_parts.h"

#include <stdlib.h>
#include <string.h>

static int64_t num_devices(const ClusterSpec *cluster, bool cpu)
{
    int64_t num = 0;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        for (size_t j = 0; j < cluster->nodes[i]->n_devices; j++) {
            const char *type = cluster->nodes[i]->devices[j]->type;
            num += (!type || strcmp(type, "cpu") == 0) == cpu;
        }
    }
    return num;
}

/* A job to be started needs CPU devices. One to look at goes on what its type says, or on the
 * others where there are too few and those are more. */
static bool wants_gpu(const Plan *plan, const struct plan_input *in)
{
    const ResourcesSpec *r = plan->spec->resources;
    if (!in->unbuilt) {
        return false;
    }
    if (r && r->type && strcmp(r->type, "any") != 0) {
        return strcmp(r->type, "cpu") != 0;
    }
    int64_t num_cpu = num_devices(in->cluster, true);
    return num_cpu < plan->mesh->num_ranks && num_cpu < num_devices(in->cluster, false);
}

/* Did the job name GPUs itself? Then that is noted already. */
static bool says_so(const ResourcesSpec *r)
{
    return r && ((r->backend && strcmp(r->backend, "cuda") == 0) ||
                 (r->type && strcmp(r->type, "any") != 0 && strcmp(r->type, "cpu") != 0));
}

int plan_set_backend(Plan *plan, const struct plan_input *in, struct error *err)
{
    const ResourcesSpec *r = plan->spec->resources;
    bool fp64 = strcmp(plan->spec->training->precision, "fp64") == 0;
    const char *word = r && r->backend ? r->backend : "auto";
    if (strcmp(word, "auto") == 0) {
        word = wants_gpu(plan, in) ? "cuda" : fp64 ? "ref" : "cpu";
    }
    if (fp64 && strcmp(word, "cpu") == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "resources.backend: training.precision fp64 needs ref, not %s", word);
    }
    if (strcmp(word, "cuda") == 0 && !says_so(r)) {
        plan_add_unbuilt(plan, "resources.backend: cuda is not built yet");
    }
    plan->backend = strdup(word);
    ASSERT(plan->backend);
    return 0;
}
