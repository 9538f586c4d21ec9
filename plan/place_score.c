/* How good a placement is: by counting. */
#include <stdlib.h>
#include <string.h>

#include "plan/place_layout.h"

struct scoring {
    const struct fabric *f;
    const struct place_layout *l;
    const int32_t *devices;
};

static int32_t domain_of(const struct scoring *s, int32_t data, int32_t stage, int32_t context,
                         int32_t tensor)
{
    int32_t rank = place_layout_rank(s->l, data, stage, context) + tensor;
    return s->f->devices[s->devices[rank]].domain;
}

static bool hard_rules_hold(const struct scoring *s, bool one_node)
{
    const struct fabric_device *d = s->f->devices;
    int16_t type = d[s->devices[0]].type;
    for (int32_t r = 0; r < s->l->num_ranks; r++) {
        int32_t first = r / s->l->tensor * s->l->tensor;
        if (d[s->devices[r]].type != type ||
            d[s->devices[r]].domain != d[s->devices[first]].domain ||
            (one_node && d[s->devices[r]].node != d[s->devices[0]].node)) {
            return false;
        }
    }
    return true;
}

/* Groups of `size` neighbours among the context x data indexes, context innermost; where along is
 * set, of the data indexes only. */
static int64_t broken_groups(const struct scoring *s, int32_t size, bool along_data)
{
    const struct place_layout *l = s->l;
    int64_t broken = 0;
    if (size <= 1) {
        return 0;
    }
    for (int32_t p = 0; p < l->pipeline; p++) {
        for (int32_t first = 0; first < l->num_columns; first += size) {
            for (int32_t t = 0; t < l->tensor; t++) {
                int32_t home = -1;
                bool whole = true;
                for (int32_t i = first; i < first + size && whole; i++) {
                    int32_t data = along_data ? i % l->data : i / l->context;
                    int32_t context = along_data ? i / l->data : i % l->context;
                    int32_t domain = domain_of(s, data, p, context, t);
                    whole = home < 0 || domain == home;
                    home = domain;
                }
                broken += !whole;
            }
        }
    }
    return broken;
}

static int64_t broken_stages(const struct scoring *s)
{
    const struct place_layout *l = s->l;
    int64_t broken = 0;
    for (int32_t d = 0; d < l->data; d++) {
        for (int32_t p = 0; p + 1 < l->pipeline; p++) {
            for (int32_t c = 0; c < l->context; c++) {
                for (int32_t t = 0; t < l->tensor; t++) {
                    int32_t a = domain_of(s, d, p, c, t), b = domain_of(s, d, p + 1, c, t);
                    broken += a != b && free_counts_leaf(s->f, a) != free_counts_leaf(s->f, b);
                }
            }
        }
    }
    return broken;
}

static bool mark(uint64_t *marks, int32_t i)
{
    uint64_t bit = (uint64_t)1 << (i % 64);
    bool fresh = !(marks[i / 64] & bit);
    marks[i / 64] |= bit;
    return fresh;
}

/* Leaves, domains, and what stays free in these. */
static void count_parts(const struct scoring *s, const struct free_map *m, PlacementScore *score)
{
    int32_t leaves = s->f->num_switches[0];
    size_t words = ((size_t)s->f->num_domains + 63) / 64 * 2 + ((size_t)leaves + 63) / 64 + 1;
    uint64_t *domains = calloc(words, sizeof *domains);
    ASSERT(domains);
    uint64_t *keys = domains + ((size_t)s->f->num_domains + 63) / 64;
    for (int32_t r = 0; r < s->l->num_ranks; r++) {
        int32_t device = s->devices[r];
        const struct fabric_device *d = &s->f->devices[device];
        if (m && free_map_has(m, device)) {
            score->fragments--;
        }
        if (!mark(domains, d->domain)) {
            continue;
        }
        score->domains++;
        int32_t key = free_counts_leaf(s->f, d->domain);
        score->leaves += mark(keys, key >= 0 ? key : leaves - 1 - key);
        if (m) {
            const struct free_counts *counts = free_map_counts(m);
            int32_t cell = free_counts_cell_of(counts, device);
            score->fragments += free_counts_by_cell(counts, d->type)[cell];
        }
    }
    free(domains);
}

bool place_score(const struct fabric *f, const struct place_request *r, const int32_t *devices,
                 const struct free_map *m, PlacementScore *score)
{
    struct place_layout l;
    ASSERT(place_layout_init(&l, r));
    struct scoring s = {f, &l, devices};
    if (!hard_rules_hold(&s, r->one_node)) {
        return false;
    }
    placement_score__init(score);
    score->has_expert_broken = score->has_context_broken = score->has_shard_broken = 1;
    score->has_pipeline_broken = score->has_leaves = score->has_domains = 1;
    score->has_fragments = 1;
    score->expert_broken = broken_groups(&s, l.expert, false);
    score->context_broken = broken_groups(&s, l.context, false);
    score->shard_broken = broken_groups(&s, l.shard, true);
    score->pipeline_broken = broken_stages(&s);
    count_parts(&s, m, score);
    return true;
}

int place_score_compare(const PlacementScore *a, const PlacementScore *b)
{
    const int64_t parts[][2] = {
        {a->expert_broken, b->expert_broken},
        {a->context_broken, b->context_broken},
        {a->shard_broken, b->shard_broken},
        {a->pipeline_broken, b->pipeline_broken},
        {a->leaves, b->leaves},
        {a->domains, b->domains},
        {a->fragments, b->fragments},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i][0] != parts[i][1]) {
            return parts[i][0] < parts[i][1] ? -1 : 1;
        }
    }
    return 0;
}
