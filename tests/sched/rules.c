/* The hard rules of a place, counted device by device. */
#include <string.h>

#include "tests/sched/world.h"

static int32_t group_size(const struct place_request *r)
{
    return r->tensor > 1 ? r->tensor : 1;
}

static int32_t num_ranks(const struct place_request *r)
{
    return r->data * r->pipeline * r->context * r->tensor;
}

bool rules_suits(const struct fabric *f, const struct place_request *r, int32_t device)
{
    const struct fabric_device *d = &f->devices[device];
    const struct fabric_type *t = &f->types[d->type];
    if ((strcmp(r->type, "any") != 0 && strcmp(r->type, t->name) != 0) ||
        (r->cpu_only && !t->is_cpu) || (r->gpu_only && t->is_cpu) ||
        (t->capability > 0 && t->capability < r->capability) ||
        (r->mem_bytes > 0 && d->mem_bytes > 0 && d->mem_bytes < r->mem_bytes)) {
        return false;
    }
    bool named = r->num_nodes == 0;
    for (size_t i = 0; i < r->num_nodes; i++) {
        named = named || strcmp(r->nodes[i], f->nodes[d->node].name) == 0;
    }
    return named;
}

/* Free suitable ones of a type, and the tensor groups that its domains have room for, or those of
 * the node that has room for most. */
static void count(const struct fabric *f, const struct place_request *r, const bool *free,
                  int16_t type, int32_t *devices, int32_t *groups)
{
    *devices = *groups = 0;
    for (int32_t d = 0, on_node = 0; d < f->num_devices;) {
        int32_t first = d, room = 0;
        for (; d < f->num_devices && f->devices[d].domain == f->devices[first].domain &&
               !(r->one_node && f->devices[d].node != f->devices[first].node);
             d++) {
            room += free[d] && f->devices[d].type == type && rules_suits(f, r, d);
        }
        bool same_node = first > 0 && f->devices[first - 1].node == f->devices[first].node;
        on_node = room / group_size(r) + (same_node ? on_node : 0);
        *devices += room;
        *groups = !r->one_node        ? *groups + room / group_size(r)
                  : on_node > *groups ? on_node
                                      : *groups;
    }
}

bool rules_fits(const struct fabric *f, const struct place_request *r, const bool *free)
{
    for (int16_t t = 0; t < f->num_types; t++) {
        int32_t devices, groups;
        count(f, r, free, t, &devices, &groups);
        if (groups >= num_ranks(r) / group_size(r)) {
            return true;
        }
    }
    return false;
}

int32_t rules_count(const struct fabric *f, const struct place_request *r, const bool *free)
{
    bool all[WORLD_MAX_DEVICES];
    memset(all, true, sizeof all);
    int32_t most = 0;
    for (int16_t t = 0; t < f->num_types; t++) {
        int32_t devices, groups, num;
        count(f, r, all, t, &devices, &groups);
        count(f, r, free, t, &num, &devices);
        most = groups >= num_ranks(r) / group_size(r) && num > most ? num : most;
    }
    return most;
}

/* Ranks of a tensor group are neighbours. */
bool rules_placed(const struct fabric *f, const struct place_request *r, const int32_t *devices)
{
    for (int32_t i = 0; i < num_ranks(r); i++) {
        const struct fabric_device *d = &f->devices[devices[i]],
                                   *first = &f->devices[devices[i - i % group_size(r)]];
        if (!rules_suits(f, r, devices[i]) || d->type != f->devices[devices[0]].type ||
            d->domain != first->domain || (r->one_node && d->node != f->devices[devices[0]].node)) {
            return false;
        }
    }
    return true;
}

void rules_free(const struct world *w, int64_t id, bool *free)
{
    for (int32_t d = 0; d < w->fabric->num_devices; d++) {
        free[d] = !w->drained[d];
    }
    for (int32_t i = 0; i < w->num_jobs; i++) {
        const struct world_job *j = &w->jobs[i];
        const struct device_set *sets[] = {world_holds(j) ? j->set : NULL,
                                           j->id == id ? NULL : j->claim};
        for (int k = 0; k < 2; k++) {
            for (int32_t n = 0; n < device_set_num(sets[k]); n++) {
                free[sets[k]->device[n]] = false;
            }
        }
    }
}

int64_t rules_in_use(const struct world *w, int32_t tenant)
{
    int64_t n = 0;
    for (int32_t i = 0; i < w->num_jobs; i++) {
        n += world_holds(&w->jobs[i]) && w->jobs[i].tenant == tenant ? w->jobs[i].num_devices : 0;
    }
    return n;
}

int64_t rules_counted(const struct world *w, const struct world_job *j)
{
    int64_t n = rules_in_use(w, j->tenant);
    for (int32_t i = 0; i < w->num_jobs; i++) {
        const struct world_job *k = &w->jobs[i];
        for (int32_t c = 0; k->tenant == j->tenant && k != j && c < device_set_num(k->claim); c++) {
            n++;
            for (int32_t r = 0; r < w->num_jobs; r++) {
                n -= world_holds(&w->jobs[r]) && w->jobs[r].tenant == j->tenant &&
                     device_set_has(w->jobs[r].set, k->claim->device[c]);
            }
        }
    }
    return n;
}

bool rules_weaker(const struct world *w, size_t run, const struct world_job *j,
                  const bool *borrowed)
{
    const struct sched_run *r = &w->runs[run];
    int64_t quota = w->tenants[r->tenant].quota;
    if (r->backfills == j->id) {
        return true;
    }
    if (r->tenant == j->tenant) {
        return r->priority < j->priority;
    }
    if (quota >= 0 && !borrowed[run]) {
        return false; /* within its quota: nobody else's business */
    }
    /* Beyond a quota, or in the common pool: for who is owed devices, or is of higher priority. */
    return r->priority < j->priority || w->tenants[j->tenant].quota >= j->num_devices;
}
