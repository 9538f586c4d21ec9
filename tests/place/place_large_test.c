/* place_find on clusters that are too large to try all ways: random ones of up to a thousand
 * devices, shapes of up to 512 ranks. The rules are checked one by one, and what plan/place.h
 * promises of the score against bounds that are counted here. PLACE_SEED=n runs that case alone. */
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

#define RANKS_MAX 512

static uint64_t dice, last_seed;
static int num_placed;

static int roll(int sides)
{
    /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = (dice += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int)((z ^ (z >> 31)) % (uint64_t)sides);
}

/* Two groups of nodes, H100 and now and then others; racks, leaves and spines, or none of them. */
static struct fabric *draw_cluster(void)
{
    struct buf text = {0};
    buf_printf(&text, "groups:\n");
    for (int g = 0; g < 2; g++) {
        int per_domain = roll(3) ? 1 : 1 + roll(4),
            per_leaf = roll(3) ? per_domain * (1 + roll(6)) : 0;
        buf_printf(&text,
                   "  - {name: %c, count: %d, devices: %d, type: %s, nodes_per_domain: %d, "
                   "nodes_per_leaf: %d, leaves_per_spine: %d}\n",
                   'a' + g, per_domain * (1 + roll(24)), 1 + roll(10),
                   g == 1 && roll(3) == 0 ? "a100" : "h100", per_domain, per_leaf, roll(4));
    }
    buf_putc(&text, 0);
    struct fabric *f = fabric_case(text.data);
    buf_free(&text);
    return f;
}

static struct free_map *draw_taken(const struct fabric *f)
{
    struct free_map *m = free_map_new(f);
    int whole = roll(60), single = roll(50);
    for (int32_t n = 0; n < f->num_nodes; n++) {
        bool all = roll(100) < whole;
        for (int32_t i = 0; i < f->nodes[n].num_devices; i++) {
            if (all || roll(100) < single) {
                free_map_take(m, f->nodes[n].first_device + i);
            }
        }
    }
    return m;
}

static struct place_request draw_request(int32_t num_devices)
{
    struct place_request r;
    int32_t most = 1 + roll(num_devices < RANKS_MAX ? num_devices : RANKS_MAX);
    do {
        r = (struct place_request){.data = 1 + roll(32),
                                   .pipeline = roll(2) ? 1 : 1 + roll(8),
                                   .context = roll(2) ? 1 : 1 + roll(6),
                                   .tensor = 1 + roll(8),
                                   .expert = 1,
                                   .shard = 1,
                                   .type = "h100"};
    } while (r.data * r.pipeline * r.context * r.tensor > most);
    int e = 1 + roll(r.data * r.context), s = 1 + roll(r.data);
    bool carved =
        e <= r.context ? r.context % e == 0 : e % r.context == 0 && r.data % (e / r.context) == 0;
    r.expert = carved ? e : 1;
    r.shard = r.data % s == 0 ? s : 1;
    return r;
}

/* ---- bounds ---- */

static int64_t room_of(const struct free_map *m, const struct place_request *r, int32_t domain,
                       int32_t block)
{
    const struct fabric_part *p = &free_map_fabric(m)->domains[domain];
    int32_t num = 0;
    for (int32_t d = p->first_device; d < p->first_device + p->num_devices; d++) {
        num += check_allowed(m, r, d);
    }
    return num / block;
}

/* Groups of so many tensor groups that must be broken; all of them, or how many domains can hold.
 */
static int64_t must_break(const struct free_map *m, const struct place_request *r, int32_t size)
{
    int64_t groups = (int64_t)r->data * r->pipeline * r->context / size, whole = 0;
    for (int32_t d = 0; d < free_map_fabric(m)->num_domains; d++) {
        whole += room_of(m, r, d, size * r->tensor);
    }
    return size > 1 && groups > whole ? (groups - whole) * r->tensor : 0;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The fewest leaves that hold all pipelines whole, or -1: for gangs without other groups. */
static int64_t fewest_leaves(const struct free_map *m, const struct place_request *r)
{
    const struct fabric *f = free_map_fabric(m);
    int64_t *leaf = calloc((size_t)f->num_domains, sizeof *leaf), num = -1, sum = 0;
    int32_t last = INT32_MIN;
    assert_non_null(leaf);
    for (int32_t d = 0; d < f->num_domains; d++) {
        int32_t key = f->domains[d].up >= 0 ? f->domains[d].up : -1 - d;
        num += key != last;
        last = key;
        leaf[num] += room_of(m, r, d, r->tensor);
    }
    for (int64_t l = 0; l <= num; l++) {
        leaf[l] /= r->pipeline;
    }
    qsort(leaf, (size_t)num + 1, sizeof *leaf, descending);
    int64_t used = 0;
    while (used <= num && sum < r->data) {
        sum += leaf[used++];
    }
    free(leaf);
    return sum < r->data ? -1 : used;
}

static void check_bounds(const struct free_map *m, const struct place_request *r,
                         const struct check_score *score)
{
    assert_int_equal(score->part[0], must_break(m, r, r->expert));
    assert_int_equal(score->part[1], must_break(m, r, r->context));
    if (r->expert * r->context * r->shard == 1) {
        int64_t leaves = fewest_leaves(m, r);
        assert_int_equal(score->part[3] == 0, leaves > 0);
        if (leaves > 0) {
            assert_int_equal(score->part[4], leaves);
        }
    }
}

/* ---- */

static void try_case(uint64_t seed)
{
    dice = seed * 0x2545f4914f6cdd1du + 1;
    struct fabric *f = draw_cluster();
    struct free_map *m = draw_taken(f);
    struct place_request r = draw_request(f->num_devices);
    int32_t devices[RANKS_MAX];
    PlacementScore score;
    struct check_score got, said;
    int part;
    bool can = check_groups(m, &r, false) >= r.data * r.pipeline * r.context;
    enum place_result result = place_find(m, &r, devices, &score, NULL);
    assert_int_equal(result == PLACE_OK, can);
    assert_int_equal(place_fits(m, &r), can);
    num_placed += can;
    if (can) {
        const char *wrong = check_placement(m, &r, devices, &got);
        said = check_of(&score);
        if (wrong || check_compare(&got, &said, &part) != 0) {
            fail_msg("%s", wrong ? wrong : check_part_names[part]);
        }
        check_bounds(m, &r, &got);
    }
    free_map_free(m);
    fabric_free(f);
}

static void large_gangs_keep_the_rules_and_the_bounds(void **state)
{
    (void)state;
    const char *one = getenv("PLACE_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t num = one ? 1 : (uint64_t)effort(20000, 3000, 300);
    for (uint64_t seed = first; seed < first + num; seed++) {
        last_seed = seed;
        try_case(seed);
    }
}

static int say_seed(void **state)
{
    (void)state;
    fprintf(stderr, "%d placed; last seed %llu\n", num_placed, (unsigned long long)last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(large_gangs_keep_the_rules_and_the_bounds, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
