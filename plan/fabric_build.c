/* Types and links of a fabric. The tree: fabric_tree.c. */
#include <stdlib.h>
#include <string.h>

#include "plan/device_types.h"
#include "plan/fabric_private.h"

/* Where the file says nothing: within a node a PCIe 5 x16 slot, under switches NDR InfiniBand,
 * elsewhere 200 Gbit/s Ethernet. Latencies are those of a step of a collective, measured rather
 * than on the wire. */
static const struct fabric_link default_links[LINK_FAR + 1] = {
    [LINK_NODE] = {63e9, 5e-6},
    [LINK_LEAF] = {50e9, 8e-6},
    [LINK_TREE] = {50e9, 12e-6},
    [LINK_FAR] = {25e9, 20e-6},
};
static const char *const link_names[LINK_FAR + 1] = {
    [LINK_NODE] = "node",
    [LINK_LEAF] = "leaf",
    [LINK_TREE] = "tree",
    [LINK_FAR] = "far",
};

static void build_links(struct fabric *f)
{
    memcpy(f->links, default_links, sizeof default_links);
    for (size_t i = 0; i < f->spec->n_links; i++) {
        const LinkInfo *given = f->spec->links[i];
        for (int link = LINK_NODE; link <= LINK_FAR; link++) {
            if (!given->link || strcmp(given->link, link_names[link]) != 0) {
                continue;
            }
            if (given->has_bytes_per_s) {
                f->links[link].bytes_per_s = given->bytes_per_s;
            }
            if (given->has_latency_s) {
                f->links[link].latency_s = given->latency_s;
            }
        }
    }
}

static const DeviceType *described(const ClusterSpec *spec, const char *name)
{
    for (size_t i = 0; i < spec->n_types; i++) {
        if (spec->types[i]->name && strcmp(spec->types[i]->name, name) == 0) {
            return spec->types[i];
        }
    }
    return NULL;
}

static void fill_type(struct fabric_type *t, const ClusterSpec *spec)
{
    const DeviceType *given = described(spec, t->name);
    DeviceType figures = DEVICE_TYPE__INIT;
    if (given) {
        figures = *given;
    }
    figures.name = (char *)(uintptr_t)t->name;
    device_types_fill(&figures);
    t->peak_fp32 = figures.peak_flops_fp32;
    t->peak_fp64 = figures.peak_flops_fp64;
    t->peak_bf16 = figures.peak_flops_bf16;
    t->domain_bytes_per_s = figures.domain_bytes_per_s;
    t->domain_latency_s = figures.domain_latency_s;
    t->mem_bytes_per_s = figures.mem_bytes_per_s;
    t->capability = figures.compute_capability;
    t->is_cpu = strcmp(t->name, "cpu") == 0;
}

/* What isn't known of the type is what was measured of the slowest of its devices. */
static void least(double *peak, double measured)
{
    if (measured > 0 && (*peak == 0 || measured < *peak)) {
        *peak = measured;
    }
}

static void use_measured(struct fabric_type *types, const struct name_table *names,
                         const ClusterSpec *spec)
{
    struct fabric_type from_devices[FABRIC_MAX_TYPES] = {0};
    for (size_t n = 0; n < spec->n_nodes; n++) {
        for (size_t i = 0; i < spec->nodes[n]->n_devices; i++) {
            const DeviceInfo *d = spec->nodes[n]->devices[i];
            struct fabric_type *t = &from_devices[name_table_find(names, d->type)];
            least(&t->peak_fp32, d->peak_flops_fp32);
            least(&t->peak_fp64, d->peak_flops_fp64);
            least(&t->peak_bf16, d->peak_flops_bf16);
            if (d->compute_capability > 0 &&
                (t->capability == 0 || d->compute_capability < t->capability)) {
                t->capability = d->compute_capability;
            }
        }
    }
    for (int32_t i = 0; i < names->num; i++) {
        struct fabric_type *t = &types[i], *m = &from_devices[i];
        t->peak_fp32 = t->peak_fp32 > 0 ? t->peak_fp32 : m->peak_fp32;
        t->peak_fp64 = t->peak_fp64 > 0 ? t->peak_fp64 : m->peak_fp64;
        t->peak_bf16 = t->peak_bf16 > 0 ? t->peak_bf16 : m->peak_bf16;
        t->capability = m->capability > 0 ? m->capability : t->capability;
    }
}

int fabric_build_types(struct fabric *f, struct error *err)
{
    struct name_table names = {0};
    int64_t num = 0;
    for (size_t n = 0; n < f->spec->n_nodes; n++) {
        for (size_t i = 0; i < f->spec->nodes[n]->n_devices; i++, num++) {
            name_table_add(&names, f->spec->nodes[n]->devices[i]->type);
        }
    }
    int rc = 0;
    if (num > FABRIC_MAX_DEVICES || names.num > FABRIC_MAX_TYPES) {
        rc = error_set(err, ERR_INVALID_ARGUMENT,
                       "%lld devices of %d types; at most %d of %d can be planned on",
                       (long long)num, names.num, FABRIC_MAX_DEVICES, FABRIC_MAX_TYPES);
        goto out;
    }
    f->num_devices = (int32_t)num;
    f->num_types = names.num;
    struct fabric_type *types = fabric_alloc(f, names.num, sizeof *types);
    for (int32_t i = 0; i < names.num; i++) {
        types[i].name = names.names[i];
        fill_type(&types[i], f->spec);
    }
    use_measured(types, &names, f->spec);
    f->types = types;
    build_links(f);
out:
    name_table_free(&names);
    return rc;
}
