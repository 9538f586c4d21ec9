#include "clients/cli/plan_mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/human.h"
#include "plan/cluster.h"
#include "plan/mesh.h"

#define ROWS_MAX 12       /* domains that are drawn */
#define ROW_NODES_MAX 4   /* nodes of a domain that are drawn */
#define NODE_RANKS_MAX 16 /* ranks that are written one by one */

/* ---- which rank is where ---- */

struct place {
    const char *node;
    int32_t device, rank;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int by_node = strcmp(x->node, y->node);
    return by_node ? by_node : (x->device > y->device) - (x->device < y->device);
}

static struct place *places_of(const Plan *plan)
{
    struct place *places = calloc(plan->n_placement + 1, sizeof *places);
    ASSERT(places);
    for (size_t i = 0; i < plan->n_placement; i++) {
        const RankPlacement *p = plan->placement[i];
        places[i] = (struct place){p->node, p->device, (int32_t)i};
    }
    qsort(places, plan->n_placement, sizeof *places, compare_places);
    return places;
}

static int32_t rank_at(const struct place *places, size_t num, const char *node, int32_t device)
{
    struct place key = {node, device, 0};
    const struct place *found = bsearch(&key, places, num, sizeof key, compare_places);
    return found ? found->rank : -1;
}

/* ---- a line ---- */

struct span {
    int32_t least, most;
};

/* What ranks of a domain have in common: the span of their places on each axis. */
struct row {
    struct span data, pipeline, context, tensor;
    int32_t num_ranks, num_nodes;
};

static void widen(struct span *s, int32_t at, bool first)
{
    s->least = first || at < s->least ? at : s->least;
    s->most = first || at > s->most ? at : s->most;
}

static void take_rank(struct row *row, const Mesh *mesh, int32_t rank)
{
    struct mesh_coord at = mesh_coord(mesh, rank);
    bool first = row->num_ranks++ == 0;
    widen(&row->data, at.data, first);
    widen(&row->pipeline, at.pipeline, first);
    widen(&row->context, at.context, first);
    widen(&row->tensor, at.tensor, first);
}

static void put_span(struct buf *out, const char *name, int64_t size, struct span s, bool *any)
{
    if (size <= 1) {
        return;
    }
    buf_printf(out, "%s%s %d", *any ? ", " : "", name, s.least);
    if (s.most > s.least) {
        buf_printf(out, "-%d", s.most);
    }
    *any = true;
}

static void put_spans(struct buf *out, const Mesh *mesh, const struct row *row)
{
    bool any = false;
    put_span(out, "data", mesh->data, row->data, &any);
    put_span(out, "pipeline", mesh->pipeline, row->pipeline, &any);
    put_span(out, "context", mesh->context, row->context, &any);
    put_span(out, "tensor", mesh->tensor, row->tensor, &any);
}

/* "[0 1 . 3]", or of many "[0-31]". */
static void put_ranks(struct buf *out, const int32_t *ranks, size_t num)
{
    buf_putc(out, '[');
    for (size_t i = 0, end; i < num; i = end) {
        end = i + 1;
        while (num > NODE_RANKS_MAX && end < num && ranks[i] >= 0 &&
               ranks[end] == ranks[i] + (int32_t)(end - i)) {
            end++;
        }
        buf_puts(out, i ? " " : "");
        if (ranks[i] < 0) {
            buf_putc(out, '.');
        } else if (end > i + 1) {
            buf_printf(out, "%d-%d", ranks[i], ranks[end - 1]);
        } else {
            buf_printf(out, "%d", ranks[i]);
        }
    }
    buf_putc(out, ']');
}

/* ---- all lines ---- */

struct drawing {
    const Plan *plan;
    const struct place *places;
    struct buf *out;
    char domain[128]; /* of the line at work; empty: none */
    struct buf line;
    struct row row;
    char *lines[ROWS_MAX]; /* owned */
    struct row rows[ROWS_MAX];
    size_t num_rows;
};

static void end_row(struct drawing *d)
{
    if (d->row.num_ranks > 0 && d->num_rows++ < ROWS_MAX) {
        if (d->row.num_nodes > ROW_NODES_MAX) {
            buf_printf(&d->line, " and %d more nodes", d->row.num_nodes - ROW_NODES_MAX);
        }
        d->lines[d->num_rows - 1] = strdup(d->line.data);
        ASSERT(d->lines[d->num_rows - 1]);
        d->rows[d->num_rows - 1] = d->row;
    }
    buf_clear(&d->line);
}

/* All lines, what their ranks have in common one below the other. */
static void put_rows(struct drawing *d, const char *head, const char *indent)
{
    size_t num = d->num_rows < ROWS_MAX ? d->num_rows : ROWS_MAX, width = 0;
    for (size_t i = 0; i < num; i++) {
        size_t len = strlen(d->lines[i]);
        width = len > width ? len : width;
    }
    for (size_t i = 0; i < num; i++) {
        buf_puts(d->out, i ? indent : head);
        if (d->plan->mesh->num_ranks > 1) {
            buf_printf(d->out, "%-*s   ", (int)width, d->lines[i]);
            put_spans(d->out, d->plan->mesh, &d->rows[i]);
        } else {
            buf_puts(d->out, d->lines[i]);
        }
        buf_putc(d->out, '\n');
        free(d->lines[i]);
    }
    if (d->num_rows > ROWS_MAX) {
        buf_printf(d->out, "%sand %zu more fast domains\n", indent, d->num_rows - ROWS_MAX);
    }
}

static void begin_row(struct drawing *d, const char *domain, const char *node)
{
    end_row(d);
    d->row = (struct row){0};
    snprintf(d->domain, sizeof d->domain, "%s", domain);
    if (strcmp(domain, node) != 0) {
        buf_printf(&d->line, "%s:", domain);
    }
}

/* The devices of a node that are in one domain: from first to the index behind the last. */
static size_t draw_part(struct drawing *d, const NodeInfo *node, size_t first)
{
    const char *domain = cluster_domain(node, node->devices[first]);
    size_t end = first, num = 0;
    int32_t *ranks = calloc(node->n_devices, sizeof *ranks);
    ASSERT(ranks);
    bool used = false;
    for (; end < node->n_devices; end++) {
        if (strcmp(cluster_domain(node, node->devices[end]), domain) != 0) {
            break;
        }
        int32_t rank =
            rank_at(d->places, d->plan->n_placement, node->name, node->devices[end]->index);
        ranks[num++] = rank;
        used = used || rank >= 0;
    }
    if (used) {
        if (strcmp(d->domain, domain) != 0) {
            begin_row(d, domain, node->name);
        }
        for (size_t i = 0; i < num; i++) {
            if (ranks[i] >= 0) {
                take_rank(&d->row, d->plan->mesh, ranks[i]);
            }
        }
        if (d->row.num_nodes++ < ROW_NODES_MAX) {
            buf_printf(&d->line, "%s%s ", d->line.len ? " " : "", node->name);
            put_ranks(&d->line, ranks, num);
        }
    }
    free(ranks);
    return end;
}

void plan_mesh_draw(struct buf *out, const Plan *plan, const ClusterSpec *cluster, const char *head,
                    const char *indent)
{
    struct place *places = places_of(plan);
    struct drawing d = {.plan = plan, .places = places, .out = out};
    buf_puts(&d.line, "");
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        for (size_t j = 0; j < cluster->nodes[i]->n_devices;) {
            j = draw_part(&d, cluster->nodes[i], j);
        }
    }
    end_row(&d);
    put_rows(&d, head, indent);
    buf_free(&d.line);
    free(places);
}

/* ---- axes and score ---- */

static const char *axis_word(Axis axis)
{
    static const char *const words[] = {"data", "tensor", "pipeline", "context", "expert"};
    return (size_t)axis < sizeof words / sizeof *words ? words[axis] : "?";
}

static const char *link_words(Link link)
{
    static const char *const words[] = {
        "no partner",           "in a fast domain",      "within a node",
        "over one leaf switch", "over further switches", "no common switch is known"};
    return (size_t)link < sizeof words / sizeof *words ? words[link] : "?";
}

void plan_mesh_axes(struct buf *out, const Plan *plan, const char *head, const char *indent)
{
    for (size_t i = 0; i < plan->n_groups; i++) {
        const AxisGroup *g = plan->groups[i];
        char n[HUMAN_MAX];
        buf_printf(out, "%s%-8s  %lld group%s of %lld, %s", i ? indent : head, axis_word(g->axis),
                   (long long)g->num_groups, g->num_groups == 1 ? "" : "s", (long long)g->size,
                   link_words(g->worst));
        if (g->worst > LINK_DOMAIN && g->in_domain > 0) {
            buf_printf(out, " at worst (%lld in a fast domain)", (long long)g->in_domain);
        } else if (g->worst > LINK_LEAF && g->in_leaf > 0) {
            buf_printf(out, " at worst (%lld under one leaf)", (long long)g->in_leaf);
        }
        if (g->bytes_per_s > 0) {
            buf_printf(out, ": %s/s, %.3g us", human_bytes(n, g->bytes_per_s), g->latency_s * 1e6);
        }
        buf_putc(out, '\n');
    }
}

static void put_broken(struct buf *out, int64_t size, int64_t broken, const char *what)
{
    if (size > 1 && broken == 0) {
        buf_printf(out, "every %s lies in one fast domain; ", what);
    } else if (size > 1) {
        buf_printf(out, "%lld %s%s fast domain; ", (long long)broken, what,
                   broken == 1 ? " leaves its" : "s leave their");
    }
}

static void put_count(struct buf *out, int64_t num, const char *what, const char *plural,
                      const char *end)
{
    buf_printf(out, "%lld %s%s", (long long)num, num == 1 ? what : plural, end);
}

void plan_mesh_score(struct buf *out, const Plan *plan, const char *head)
{
    const PlacementScore *s = plan->score;
    const ParallelSpec *l = plan->spec->parallel->layout;
    if (!s) {
        return;
    }
    buf_puts(out, head);
    put_broken(out, plan->mesh->expert, s->expert_broken, "expert group");
    put_broken(out, plan->mesh->context, s->context_broken, "context group");
    put_broken(out, l->zero_stage > 0 ? l->shard_size : 1, s->shard_broken, "shard group");
    if (plan->mesh->pipeline > 1 && s->pipeline_broken == 0) {
        buf_puts(out, "neighbouring stages share a leaf; ");
    } else if (plan->mesh->pipeline > 1) {
        put_count(out, s->pipeline_broken, "pair", "pairs",
                  " of neighbouring stages without a common leaf; ");
    }
    buf_puts(out, "touches ");
    if (s->leaves > 0) {
        put_count(out, s->leaves, "leaf", "leaves", ", ");
    }
    put_count(out, s->domains, "fast domain", "fast domains", ", ");
    put_count(out, s->fragments, "device", "devices", " left over in them\n");
}
