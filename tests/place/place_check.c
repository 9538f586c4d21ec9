#include "tests/place/place_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *const check_part_names[CHECK_PARTS] = {"expert", "context", "shard",    "pipeline",
                                                   "leaves", "domains", "fragments"};

/* ---- whose neighbour is whose ---- */

static int64_t rank_at(const struct place_request *r, int64_t d, int64_t p, int64_t c, int64_t t)
{
    return ((d * r->pipeline + p) * r->context + c) * r->tensor + t;
}

/* Two domains that have a leaf switch, or a node, in common. */
static bool near(const struct fabric *f, int32_t a, int32_t b)
{
    if (a == b) {
        return true;
    }
    if (f->domains[a].up >= 0 || f->domains[b].up >= 0) {
        return f->domains[a].up == f->domains[b].up;
    }
    if (a > b) {
        return near(f, b, a);
    }
    /* Without switches: a chain of domains, each on a node of the one before it. */
    for (; a < b; a++) {
        const struct fabric_part *x = &f->domains[a], *y = &f->domains[a + 1];
        if (f->devices[x->first_device + x->num_devices - 1].node !=
            f->devices[y->first_device].node) {
            return false;
        }
    }
    return true;
}

/* home[rank]: its domain. */
static void count_groups(const struct fabric *f, const struct place_request *r, const int32_t *home,
                         int64_t *part)
{
    int64_t D = r->data, P = r->pipeline, C = r->context, T = r->tensor;
    for (int64_t p = 0; p < P; p++) {
        for (int64_t t = 0; t < T; t++) {
            for (int64_t x = 0; r->expert > 1 && x < D * C; x += r->expert) {
                bool broken = false;
                for (int64_t i = x; i < x + r->expert; i++) {
                    broken |= home[rank_at(r, i / C, p, i % C, t)] !=
                              home[rank_at(r, x / C, p, x % C, t)];
                }
                part[0] += broken;
            }
            for (int64_t d = 0; d < D; d++) {
                bool broken = false;
                for (int64_t c = 1; c < C; c++) {
                    broken |= home[rank_at(r, d, p, c, t)] != home[rank_at(r, d, p, 0, t)];
                }
                part[1] += broken;
            }
            for (int64_t c = 0; r->shard > 1 && c < C; c++) {
                for (int64_t s = 0; s < D; s += r->shard) {
                    bool broken = false;
                    for (int64_t d = s; d < s + r->shard; d++) {
                        broken |= home[rank_at(r, d, p, c, t)] != home[rank_at(r, s, p, c, t)];
                    }
                    part[2] += broken;
                }
            }
            for (int64_t d = 0; p + 1 < P && d < D; d++) {
                for (int64_t c = 0; c < C; c++) {
                    part[3] +=
                        !near(f, home[rank_at(r, d, p, c, t)], home[rank_at(r, d, p + 1, c, t)]);
                }
            }
        }
    }
}

/* free_in[domain]: free devices of the type before. */
static void count_parts(const struct fabric *f, int64_t num, const int32_t *home,
                        const int32_t *free_in, int64_t *part)
{
    int32_t *domains = calloc((size_t)num, sizeof *domains);
    int32_t *leaves = calloc((size_t)num, sizeof *leaves); /* a domain of each */
    ASSERT(domains && leaves);
    part[6] = -num;
    for (int64_t i = 0; i < num; i++) {
        int64_t d = part[5], l = part[4];
        while (d > 0 && domains[d - 1] != home[i]) {
            d--;
        }
        if (d > 0) {
            continue;
        }
        domains[part[5]++] = home[i];
        part[6] += free_in[home[i]];
        while (l > 0 && !near(f, leaves[l - 1], home[i])) {
            l--;
        }
        if (l == 0) {
            leaves[part[4]++] = home[i];
        }
    }
    free(domains);
    free(leaves);
}

/* ---- a placement ---- */

static bool type_allowed(const struct fabric *f, const struct place_request *r, int32_t type)
{
    const struct fabric_type *t = &f->types[type];
    return (!r->type || strcmp(r->type, "any") == 0 || strcmp(r->type, t->name) == 0) &&
           !(r->cpu_only && !t->is_cpu) && !(r->gpu_only && t->is_cpu) &&
           !(t->capability > 0 && t->capability < r->capability);
}

static bool suits(const struct fabric *f, const struct place_request *r, int32_t device)
{
    const struct fabric_device *d = &f->devices[device];
    bool named = r->num_nodes == 0;
    for (size_t i = 0; i < r->num_nodes; i++) {
        named |= strcmp(f->nodes[d->node].name, r->nodes[i]) == 0;
    }
    return named && type_allowed(f, r, d->type) &&
           !(d->mem_bytes > 0 && d->mem_bytes < r->mem_bytes);
}

bool check_allowed(const struct free_map *m, const struct place_request *r, int32_t device)
{
    return free_map_has(m, device) && suits(free_map_fabric(m), r, device);
}

static void free_of_type(const struct free_map *m, int32_t type, int32_t *free_in)
{
    const struct fabric *f = free_map_fabric(m);
    for (int32_t d = 0; d < f->num_devices; d++) {
        free_in[f->devices[d].domain] += f->devices[d].type == type && free_map_has(m, d);
    }
}

const char *check_placement(const struct free_map *m, const struct place_request *r,
                            const int32_t *devices, struct check_score *score)
{
    const struct fabric *f = free_map_fabric(m);
    int64_t num = (int64_t)r->data * r->pipeline * r->context * r->tensor;
    bool *used = calloc((size_t)f->num_devices, sizeof *used);
    int32_t *home = calloc((size_t)num, sizeof *home);
    int32_t *free_in = calloc((size_t)f->num_domains, sizeof *free_in);
    const char *wrong = NULL;
    ASSERT(used && home && free_in);
    *score = (struct check_score){0};
    for (int64_t i = 0; i < num && !wrong; i++) {
        int32_t d = devices[i];
        if (d < 0 || d >= f->num_devices || used[d]) {
            wrong = "a device that isn't there, or twice";
        } else if (!check_allowed(m, r, d)) {
            wrong = "a device that is taken or doesn't suit";
        } else if (f->devices[d].type != f->devices[devices[0]].type) {
            wrong = "devices of two types";
        } else if (f->devices[d].domain != f->devices[devices[i / r->tensor * r->tensor]].domain) {
            wrong = "a tensor group leaves its domain";
        } else {
            used[d] = true;
            home[i] = f->devices[d].domain;
        }
    }
    if (!wrong) {
        free_of_type(m, f->devices[devices[0]].type, free_in);
        count_groups(f, r, home, score->part);
        count_parts(f, num, home, free_in, score->part);
    }
    free(used);
    free(home);
    free(free_in);
    return wrong;
}

int check_compare(const struct check_score *a, const struct check_score *b, int *part)
{
    for (int i = 0; i < CHECK_PARTS; i++) {
        if (a->part[i] != b->part[i]) {
            *part = i;
            return a->part[i] < b->part[i] ? -1 : 1;
        }
    }
    *part = CHECK_PARTS;
    return 0;
}

struct check_score check_of(const PlacementScore *s)
{
    return (struct check_score){{s->expert_broken, s->context_broken, s->shard_broken,
                                 s->pipeline_broken, s->leaves, s->domains, s->fragments}};
}

/* ---- all ways ---- */

struct search {
    const struct fabric *f;
    const struct place_request *r;
    int32_t num_groups;
    int32_t *home;    /* by rank */
    int32_t *room;    /* by domain: what the job may still take */
    int32_t *start;   /* ... before it took anything */
    int32_t *free_in; /* by domain: free ones of the type */
    bool found;
    struct check_score best;
};

/* Another domain that nobody uses yet and that is like this one: then trying both is idle. */
static bool like_an_earlier_one(const struct search *s, int32_t domain)
{
    if (s->room[domain] != s->start[domain]) {
        return false;
    }
    for (int32_t d = 0; d < domain; d++) {
        if (s->room[d] == s->start[d] && s->start[d] == s->start[domain] &&
            s->free_in[d] == s->free_in[domain] && near(s->f, d, domain)) {
            return true;
        }
    }
    return false;
}

static void try_all(struct search *s, int32_t group)
{
    int32_t t = s->r->tensor;
    if (group == s->num_groups) {
        struct check_score now = {0};
        int part;
        count_groups(s->f, s->r, s->home, now.part);
        count_parts(s->f, (int64_t)group * t, s->home, s->free_in, now.part);
        if (!s->found || check_compare(&now, &s->best, &part) < 0) {
            s->best = now;
        }
        s->found = true;
        return;
    }
    for (int32_t d = 0; d < s->f->num_domains; d++) {
        if (s->room[d] < t || like_an_earlier_one(s, d)) {
            continue;
        }
        s->room[d] -= t;
        for (int32_t i = 0; i < t; i++) {
            s->home[group * t + i] = d;
        }
        try_all(s, group + 1);
        s->room[d] += t;
    }
}

bool check_best(const struct free_map *m, const struct place_request *r, struct check_score *best)
{
    const struct fabric *f = free_map_fabric(m);
    struct search s = {.f = f, .r = r, .num_groups = r->data * r->pipeline * r->context};
    for (int32_t type = 0; type < f->num_types; type++) {
        size_t num = (size_t)f->num_domains;
        s.home = calloc((size_t)(s.num_groups * r->tensor), sizeof *s.home);
        s.room = calloc(num, sizeof *s.room);
        s.start = calloc(num, sizeof *s.start);
        s.free_in = calloc(num, sizeof *s.free_in);
        ASSERT(s.home && s.room && s.start && s.free_in);
        free_of_type(m, type, s.free_in);
        for (int32_t d = 0; d < f->num_devices; d++) {
            s.room[f->devices[d].domain] += f->devices[d].type == type && check_allowed(m, r, d);
        }
        memcpy(s.start, s.room, num * sizeof *s.room);
        try_all(&s, 0);
        free(s.home);
        free(s.room);
        free(s.start);
        free(s.free_in);
    }
    *best = s.best;
    return s.found;
}

int32_t check_groups(const struct free_map *m, const struct place_request *r, bool whole)
{
    const struct fabric *f = free_map_fabric(m);
    int32_t most = 0;
    for (int32_t type = 0; type < f->num_types; type++) {
        int32_t groups = 0;
        for (int32_t d = 0; d < f->num_domains; d++) {
            int32_t room = 0;
            for (int32_t i = 0; i < f->num_devices; i++) {
                room += f->devices[i].domain == d && f->devices[i].type == type && suits(f, r, i) &&
                        (whole || free_map_has(m, i));
            }
            groups += room / r->tensor;
        }
        most = groups > most ? groups : most;
    }
    return most;
}
