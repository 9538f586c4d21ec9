#include "server/out_of_use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/free_map.h"

static bool is_blocked(const struct fabric *f, const bool *drained, const struct place_request *r)
{
    struct free_map *m = NULL;
    for (int32_t d = 0; d < f->num_devices; d++) {
        if (drained[d]) {
            m = m ? m : free_map_new(f);
            free_map_take(m, d);
        }
    }
    bool blocked = m && !place_fits(m, r);
    free_map_free(m);
    return blocked;
}

/* Memory aside: that is about single devices of a type. named: by node; NULL = all. */
static bool suits(const struct fabric *f, const struct place_request *r, const bool *named,
                  int32_t device)
{
    const struct fabric_device *d = &f->devices[device];
    const struct fabric_type *type = &f->types[d->type];
    return (!named || named[d->node]) && !(r->cpu_only && !type->is_cpu) &&
           !(r->gpu_only && type->is_cpu) &&
           (strcmp(r->type, "any") == 0 || strcmp(r->type, type->name) == 0);
}

bool out_of_use_words(const struct topology *t, const struct place_request *r, char *out,
                      size_t size)
{
    const struct fabric *f = t->fabric;
    const bool *drained = drains_flags(t->drains);
    if (!is_blocked(f, drained, r)) {
        return false;
    }
    bool *named = place_named_nodes(f, r);
    int32_t *alike = malloc(((size_t)f->num_devices + 1) * sizeof *alike);
    ASSERT(alike);
    int32_t num = 0, num_out = 0, num_alike = 0;
    const char *reason = NULL;
    for (int32_t d = 0; d < f->num_devices; d++) {
        if (!suits(f, r, named, d)) {
            continue;
        }
        const char *here = drained[d] ? drains_reason(t->drains, d) : NULL;
        num++;
        num_out += drained[d];
        reason = reason ? reason : here;
        if (here && strcmp(here, reason) == 0) {
            alike[num_alike++] = d;
        }
    }
    free(named);
    if (num_out == 0 || !out) {
        free(alike);
        return num_out > 0;
    }
    struct buf names = {0};
    struct device_set *set = device_set_new(alike, num_alike);
    fabric_print_set(f, set, &names);
    snprintf(out, size, "%d of the %d device%s that suit it %s out of use: %.100s (%.200s)%s",
             num_out, num, num == 1 ? "" : "s", num_out == 1 ? "is" : "are", names.data,
             reason && *reason ? reason : "no reason given",
             num_out > num_alike ? ", others for other reasons" : "");
    device_set_free(set);
    buf_free(&names);
    free(alike);
    return true;
}
