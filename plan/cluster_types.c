/* Figures of the types that a cluster's devices have. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "plan/cluster_private.h"
#include "plan/device_types.h"
#include "proto/text.h"

static int refuse_type(const ClusterSpec *c, const char *path, const char *type, struct error *err)
{
    struct buf known = {0};
    for (size_t i = 0; device_types_names[i]; i++) {
        buf_printf(&known, "%s%s", i ? ", " : "", device_types_names[i]);
    }
    for (size_t i = 0; i < c->n_types; i++) {
        if (!device_types_known(c->types[i]->name)) {
            buf_printf(&known, ", %s", c->types[i]->name);
        }
    }
    /* Behind "cpu": tpu is none. */
    const char *near = text_nearest(type, device_types_names + 1);
    error_set(err, ERR_INVALID_ARGUMENT,
              "%s.%s: type %s isn't known (%s are)%s%s%s`types` can describe it", path,
              path[0] == 'g' ? "type" : "devices", type, known.data,
              near ? ": did you mean " : "; ", near ? near : "", near ? "? Else " : "");
    buf_free(&known);
    return -1;
}

static void add_type(ClusterSpec *c, const char *name)
{
    DeviceType **types = realloc(c->types, (c->n_types + 1) * sizeof *types);
    DeviceType *t = malloc(sizeof *t);
    ASSERT(types && t);
    device_type__init(t);
    t->name = strdup(name);
    ASSERT(t->name);
    c->types = types;
    c->types[c->n_types++] = t;
}

/* One of the table's, if the file doesn't describe it. */
static int use_type(ClusterSpec *c, const struct cluster_origin *origin, size_t node,
                    const char *name, struct error *err)
{
    for (size_t i = 0; i < c->n_types; i++) {
        if (strcmp(c->types[i]->name, name) == 0) {
            return 0;
        }
    }
    if (!device_types_known(name)) {
        char path[CLUSTER_PATH_MAX];
        cluster_path(origin, node, path);
        return refuse_type(c, path, name, err);
    }
    add_type(c, name);
    return 0;
}

static void fill_memory(const ClusterSpec *c, DeviceInfo *d)
{
    for (size_t i = 0; i < c->n_types && !d->has_mem_bytes; i++) {
        if (strcmp(c->types[i]->name, d->type) == 0 && c->types[i]->mem_bytes > 0) {
            d->has_mem_bytes = 1;
            d->mem_bytes = c->types[i]->mem_bytes;
        }
    }
}

int cluster_fill_types(ClusterSpec *c, const struct cluster_origin *origin, struct error *err)
{
    struct name_table used = {0};
    int rc = 0;
    for (size_t n = 0; n < c->n_nodes && rc == 0; n++) {
        for (size_t i = 0; i < c->nodes[n]->n_devices && rc == 0; i++) {
            const char *type = c->nodes[n]->devices[i]->type;
            int32_t known = used.num;
            if (name_table_add(&used, type) == known) {
                rc = use_type(c, origin, n, type, err);
            }
        }
    }
    if (rc == 0 && used.num > FABRIC_MAX_TYPES) {
        rc = error_set(err, ERR_INVALID_ARGUMENT, "types: devices of %d types; at most %d",
                       used.num, FABRIC_MAX_TYPES);
    }
    name_table_free(&used);
    for (size_t i = 0; i < c->n_types && rc == 0; i++) {
        device_types_fill(c->types[i]);
    }
    for (size_t n = 0; n < c->n_nodes && rc == 0; n++) {
        for (size_t i = 0; i < c->nodes[n]->n_devices; i++) {
            fill_memory(c, c->nodes[n]->devices[i]);
        }
    }
    return rc;
}
