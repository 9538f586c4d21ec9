/* How the ranks of each axis hang together. */
#include <stdlib.h>
#include <string.h>
#include "plan/placement.h"

struct survey {
    const struct fabric *f;
    const struct place_request *r;
    const int32_t *devices;
    int32_t num_ranks;
    double nic_bytes_per_s; /* what a device gets of its node's cards, the least; 0 = not known */
};

/* The worst way within a group: ways are those of a tree, so that one end is enough. */
static Link worst_link(const struct survey *s, const int32_t *ranks, int32_t num)
{
    Link worst = LINK_NONE;
    for (int32_t i = 1; i < num; i++) {
        Link link = fabric_link(s->f, s->devices[ranks[0]], s->devices[ranks[i]]);
        worst = link > worst ? link : worst;
    }
    return worst;
}

/* Is rank the first of its group of the axis? */
static bool is_first(const struct survey *s, Axis axis, int32_t rank)
{
    int32_t t = s->r->tensor, c = s->r->context, p = s->r->pipeline;
    int32_t context = rank / t % c, data = rank / t / c / p;
    switch (axis) {
    case AXIS_DATA:
        return data == 0;
    case AXIS_TENSOR:
        return rank % t == 0;
    case AXIS_PIPELINE:
        return rank / t / c % p == 0;
    case AXIS_CONTEXT:
        return context == 0;
    case AXIS_EXPERT:
    default:
        return (data * c + context) % s->r->expert == 0;
    }
}

/* Cards are shared by all devices of a node, whether they are the gang's or not. */
static double nic_share(const struct fabric *f, const int32_t *devices, int32_t num_ranks)
{
    double least = 0;
    bool *used = calloc((size_t)f->num_nodes, sizeof *used);
    ASSERT(used);
    for (int32_t r = 0; r < num_ranks; r++) {
        used[f->devices[devices[r]].node] = true;
    }
    for (int32_t i = 0; i < f->num_nodes; i++) {
        const NodeInfo *info = f->spec->nodes[i];
        int32_t node = f->node_of_spec[i];
        double share = info->nics * info->nic_bytes_per_s / f->nodes[node].num_devices;
        if (used[node] && share > 0 && (least == 0 || share < least)) {
            least = share;
        }
    }
    free(used);
    return least;
}

static void set_figures(const struct survey *s, AxisGroup *g)
{
    const struct fabric_type *type = &s->f->types[s->f->devices[s->devices[0]].type];
    g->has_bytes_per_s = g->has_latency_s = 1;
    if (g->worst <= LINK_DOMAIN) {
        g->bytes_per_s = type->domain_bytes_per_s;
        g->latency_s = type->domain_latency_s;
        return;
    }
    g->bytes_per_s = s->f->links[g->worst].bytes_per_s;
    g->latency_s = s->f->links[g->worst].latency_s;
    if (g->worst >= LINK_LEAF && s->nic_bytes_per_s > 0 && s->nic_bytes_per_s < g->bytes_per_s) {
        g->bytes_per_s = s->nic_bytes_per_s;
    }
}

static AxisGroup *group_new(const struct survey *s, Axis axis, int32_t size, int32_t *ranks)
{
    AxisGroup *g = malloc(sizeof *g);
    ASSERT(g);
    axis_group__init(g);
    g->has_axis = g->has_size = g->has_num_groups = g->has_worst = 1;
    g->has_in_domain = g->has_in_leaf = 1;
    g->axis = axis;
    g->size = size;
    g->num_groups = s->num_ranks / size;
    g->worst = LINK_NONE;
    for (int32_t rank = 0; rank < s->num_ranks; rank++) {
        if (!is_first(s, axis, rank)) {
            continue;
        }
        Link worst = worst_link(s, ranks, place_group(s->r, axis, rank, ranks));
        g->worst = worst > g->worst ? worst : g->worst;
        g->in_domain += worst <= LINK_DOMAIN;
        g->in_leaf += worst <= LINK_LEAF;
    }
    set_figures(s, g);
    return g;
}

void placement_set_groups(Plan *plan, const struct fabric *f, const struct place_request *r,
                          const int32_t *devices)
{
    static const Axis axes[] = {AXIS_TENSOR, AXIS_EXPERT, AXIS_CONTEXT, AXIS_PIPELINE, AXIS_DATA};
    const int32_t sizes[] = {r->tensor, r->expert, r->context, r->pipeline, r->data};
    struct survey s = {.f = f, .r = r, .devices = devices};
    s.num_ranks = (int32_t)plan->n_placement;
    s.nic_bytes_per_s = nic_share(f, devices, s.num_ranks);
    int32_t *ranks = calloc((size_t)s.num_ranks, sizeof *ranks);
    plan->groups = calloc(sizeof axes / sizeof axes[0], sizeof *plan->groups);
    ASSERT(ranks && plan->groups);
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        if (sizes[i] > 1) {
            plan->groups[plan->n_groups++] = group_new(&s, axes[i], sizes[i], ranks);
        }
    }
    free(ranks);
}
