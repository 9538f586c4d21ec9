/* place_find against all ways there are, on small random clusters: 12 devices at most, shapes of up
 * to 8 ranks. PLACE_SEED=n runs that case alone and says what it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tests/effort.h"
#include "tests/place/place_check.h"
#include "tests/unit/fabric_case.h"

#define DEVICES_MAX 12
#define RANKS_MAX 8

struct dice {
    uint64_t state;
};

static int roll(struct dice *d, int sides)
{
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = (d->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int)((z ^ (z >> 31)) % (uint64_t)sides);
}

/* ---- a case ---- */

struct place_case {
    struct fabric *f;
    struct free_map *m;
    struct place_request r;
    const char *pinned[2];
    struct buf text;
};

/* One device's entry. */
static void put_device(struct place_case *c, struct dice *d, int types, const char *domain)
{
    static const char *const names[] = {"h100", "a100", "cpu"};
    buf_printf(&c->text, "{type: %s", names[types > 1 ? roll(d, types) : 0]);
    if (domain) {
        buf_printf(&c->text, ", domain: %s", domain);
    }
    if (roll(d, 4) == 0) {
        buf_printf(&c->text, ", mem_bytes: %d", 1 + roll(d, 2));
    }
    buf_printf(&c->text, "}, ");
}

/* Nodes of 1 to 5 devices: one domain, two, or a part of one that spans nodes; leaves of 1 to 3
 * nodes under spines of 2, or no switches at all. */
static void draw_cluster(struct place_case *c, struct dice *d)
{
    int most = 1 + roll(d, DEVICES_MAX), per_leaf = roll(d, 4),
        types = roll(d, 3) ? 1 : 1 + roll(d, 3);
    int style = roll(d, 4), alike = roll(d, 2) ? 1 + roll(d, 5) : 0, span = 1 + roll(d, 2);
    span = per_leaf > 0 && per_leaf % span ? 1 : span;
    buf_printf(&c->text, "nodes:\n");
    for (int n = 0, num = 0; num < most; n++) {
        int here = alike ? alike : 1 + roll(d, 5);
        here = here > most - num ? most - num : here;
        num += here;
        buf_printf(&c->text, "  - {name: n%d, devices: [", n);
        for (int i = 0; i < here; i++) {
            char domain[32];
            snprintf(domain, sizeof domain, style == 0 ? "r%d" : "n%d-%d",
                     style == 0 ? n / span : n, i / 2);
            put_device(c, d, types, style < 2 ? domain : NULL);
        }
        buf_printf(&c->text, "]");
        if (per_leaf > 0) {
            buf_printf(&c->text, ", switches: [l%d, s%d]", n / per_leaf, n / per_leaf / 2);
        }
        buf_printf(&c->text, "}\n");
    }
    buf_putc(&c->text, 0);
    c->f = fabric_case(c->text.data);
}

static void draw_request(struct place_case *c, struct dice *d)
{
    struct place_request *r = &c->r;
    int most = c->f->num_devices < RANKS_MAX ? c->f->num_devices : RANKS_MAX;
    most = roll(d, 8) ? most : RANKS_MAX; /* some can never be */
    do {
        *r = (struct place_request){.data = 1 + roll(d, 8),
                                    .pipeline = 1 + roll(d, 4),
                                    .context = 1 + roll(d, 4),
                                    .tensor = 1 + roll(d, 5),
                                    .expert = 1,
                                    .shard = 1,
                                    .type = "any"};
        if (roll(d, 2)) {
            r->context = 1;
        }
    } while (r->data * r->pipeline * r->context * r->tensor > most);
    int e = 1 + roll(d, r->data * r->context), s = 1 + roll(d, r->data);
    bool carved = e <= r->context ? r->context % e == 0
                                  : e % r->context == 0 && r->data % (e / r->context) == 0;
    r->expert = carved ? e : 1;
    r->shard = r->data % s == 0 ? s : 1;
    r->type = roll(d, 4) ? "any" : "h100";
    r->gpu_only = roll(d, 8) == 0;
    r->cpu_only = !r->gpu_only && roll(d, 16) == 0;
    r->mem_bytes = roll(d, 4) == 0 ? 2 : 0;
    r->nodes = c->pinned;
    c->pinned[0] = "n1";
    c->pinned[1] = "n0";
    r->num_nodes = roll(d, 8) == 0 ? (size_t)(1 + roll(d, 2)) : 0;
}

static void draw(struct place_case *c, uint64_t seed)
{
    struct dice d = {seed * 0x2545f4914f6cdd1du + 1};
    *c = (struct place_case){0};
    draw_cluster(c, &d);
    draw_request(c, &d);
    c->m = free_map_new(c->f);
    int taken = roll(&d, 3) == 0 ? 0 : roll(&d, 50);
    for (int32_t i = 0; i < c->f->num_devices; i++) {
        if (roll(&d, 100) < taken) {
            free_map_take(c->m, i);
        }
    }
}

static void end(struct place_case *c)
{
    free_map_free(c->m);
    fabric_free(c->f);
    buf_free(&c->text);
}

static void say(const struct place_case *c, uint64_t seed, const struct check_score *got,
                const struct check_score *best)
{
    const struct place_request *r = &c->r;
    fprintf(stderr, "seed %llu: d%d p%d c%d t%d e%d s%d type %s nodes %zu mem %lld\n%staken:",
            (unsigned long long)seed, r->data, r->pipeline, r->context, r->tensor, r->expert,
            r->shard, r->type, r->num_nodes, (long long)r->mem_bytes, c->text.data);
    for (int32_t i = 0; i < c->f->num_devices; i++) {
        if (!free_map_has(c->m, i)) {
            fprintf(stderr, " %s:%d", c->f->nodes[c->f->devices[i].node].name,
                    c->f->devices[i].index);
        }
    }
    fprintf(stderr, "\n");
    for (int i = 0; i < CHECK_PARTS; i++) {
        fprintf(stderr, "  %s %lld, best %lld\n", check_part_names[i], (long long)got->part[i],
                (long long)best->part[i]);
    }
}

/* ---- */

struct tally {
    int placed, best, worse[CHECK_PARTS];
    int64_t by_max[CHECK_PARTS];
};

static void check_refusal(const struct place_case *c, enum place_result result,
                          const struct place_lack *lack)
{
    const struct place_request *r = &c->r;
    int32_t groups = r->data * r->pipeline * r->context, suiting = 0;
    int32_t now = check_groups(c->m, r, false), ever = check_groups(c->m, r, true);
    int32_t free_of[FABRIC_MAX_TYPES] = {0};
    for (int32_t i = 0; i < c->f->num_devices; i++) {
        if (check_allowed(c->m, r, i)) {
            int32_t n = ++free_of[c->f->devices[i].type];
            suiting = n > suiting ? n : suiting;
        }
    }
    assert_true(now < groups);
    assert_int_equal(result == PLACE_NEVER, ever < groups);
    assert_int_equal(lack->need, groups * r->tensor);
    assert_int_equal(lack->num_groups, groups);
    assert_int_equal(lack->group, r->tensor);
    if (result == PLACE_FEW) {
        assert_true(lack->free < groups * r->tensor);
    }
    if (result == PLACE_FRAGMENTED) {
        assert_true(lack->free >= groups * r->tensor && lack->free <= suiting);
    }
}

static void try_case(uint64_t seed, bool loud, struct tally *tally)
{
    struct place_case c;
    int32_t devices[RANKS_MAX];
    struct place_lack lack;
    struct check_score got, said, best = {{0}};
    PlacementScore score;
    draw(&c, seed);
    enum place_result result = place_find(c.m, &c.r, devices, &score, &lack);
    bool can = check_best(c.m, &c.r, &best);
    if (can != (result == PLACE_OK) || place_fits(c.m, &c.r) != can) {
        say(&c, seed, &best, &best);
        fail_msg("seed %llu: place_find says %d, there is %s place", (unsigned long long)seed,
                 result, can ? "a" : "no");
    }
    if (!can) {
        check_refusal(&c, result, &lack);
        end(&c);
        return;
    }
    const char *wrong = check_placement(c.m, &c.r, devices, &got);
    int part;
    said = check_of(&score);
    if (wrong || check_compare(&got, &said, &part) != 0) {
        say(&c, seed, &said, &best);
        fail_msg("seed %llu: %s", (unsigned long long)seed, wrong ? wrong : check_part_names[part]);
    }
    tally->placed++;
    int order = check_compare(&got, &best, &part);
    assert_true(order >= 0);
    bool nothing_broken = true;
    for (int i = 0; i < 4; i++) {
        nothing_broken &= best.part[i] == 0;
    }
    /* What plan/place.h promises. */
    if (order > 0 && (part < 2 || nothing_broken)) {
        say(&c, seed, &got, &best);
        fail_msg("seed %llu: %s", (unsigned long long)seed, check_part_names[part]);
    }
    if (order == 0) {
        tally->best++;
    } else {
        tally->worse[part]++;
        int64_t by = got.part[part] - best.part[part];
        tally->by_max[part] = by > tally->by_max[part] ? by : tally->by_max[part];
    }
    if (loud || (order > 0 && getenv("PLACE_LOUD"))) {
        say(&c, seed, &got, &best);
    }
    end(&c);
}

static void no_way_is_better_than_the_one_found(void **state)
{
    (void)state;
    struct tally tally = {0};
    const char *one = getenv("PLACE_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t num = one ? 1 : (uint64_t)effort(50000, 8000, 800);
    for (uint64_t seed = first; seed < first + num; seed++) {
        try_case(seed, one != NULL, &tally);
    }
    printf("%llu cases, %d placed, %d at the optimum\n", (unsigned long long)num, tally.placed,
           tally.best);
    for (int i = 0; i < CHECK_PARTS; i++) {
        printf("  %s first worse in %d, by %lld at most\n", check_part_names[i], tally.worse[i],
               (long long)tally.by_max[i]);
    }
}

/* ---- on one node ---- */

/* What is promised where all devices lie on one node, by what is proven of gangs that may use one
 * node alone. */
static void try_one_node(uint64_t seed, int *placed)
{
    struct place_case c;
    int32_t devices[RANKS_MAX], there[RANKS_MAX];
    struct place_lack lack;
    PlacementScore score, best = {0}, given;
    bool can = false, ever = false;
    draw(&c, seed);
    struct free_map *empty = free_map_new(c.f);
    for (int32_t n = 0; n < c.f->num_nodes; n++) {
        struct place_request here = c.r;
        bool allowed = c.r.num_nodes == 0;
        for (size_t i = 0; i < c.r.num_nodes; i++) {
            allowed |= strcmp(c.r.nodes[i], c.f->nodes[n].name) == 0;
        }
        here.nodes = &c.f->nodes[n].name;
        here.num_nodes = 1;
        ever |= allowed && place_fits(empty, &here);
        if (allowed && place_find(c.m, &here, there, &score, NULL) == PLACE_OK) {
            best = !can || place_score_compare(&score, &best) < 0 ? score : best;
            can = true;
        }
    }
    c.r.one_node = true;
    enum place_result result = place_find(c.m, &c.r, devices, &score, &lack);
    if (can != (result == PLACE_OK) || place_fits(c.m, &c.r) != can ||
        (!can && ever != (result != PLACE_NEVER))) {
        fail_msg("seed %llu on one node: place_find says %d, there is %s place",
                 (unsigned long long)seed, result, can ? "a" : "no");
    }
    if (can) {
        for (int32_t i = 1; i < c.r.data * c.r.pipeline * c.r.context * c.r.tensor; i++) {
            assert_int_equal(c.f->devices[devices[i]].node, c.f->devices[devices[0]].node);
        }
        assert_int_equal(place_score_compare(&score, &best), 0);
        assert_true(place_score(c.f, &c.r, devices, c.m, &given));
        assert_int_equal(place_score_compare(&score, &given), 0);
        ++*placed;
    } else {
        assert_true(lack.need > 0);
    }
    free_map_free(empty);
    end(&c);
}

static void a_gang_of_one_node_gets_the_best_of_them(void **state)
{
    (void)state;
    int placed = 0, num = effort(50000, 8000, 800);
    for (int seed = 1; seed <= num; seed++) {
        try_one_node((uint64_t)seed, &placed);
    }
    assert_true(placed > num / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_is_better_than_the_one_found),
        cmocka_unit_test(a_gang_of_one_node_gets_the_best_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
