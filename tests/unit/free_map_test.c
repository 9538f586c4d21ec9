/* Free devices and their counts: always what a look at every device would count. */
#include "plan/free_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/fabric_case.h"

static const char mixed[] =
    "nodes:\n"
    "  - {name: a, switches: [l0, s0], devices: [{domain: x}, {domain: x, type: h100},\n"
    "       {domain: y, type: h100}, {domain: y}]}\n"
    "  - {name: b, switches: [l0, s0], devices: [{type: a100}, {type: a100}]}\n"
    "  - {name: r0, switches: [l1, s0], devices: [{type: gb200, domain: rack}]}\n"
    "  - {name: r1, switches: [l1, s0], devices: [{type: gb200, domain: rack}, {domain: rack}]}\n"
    "  - {name: far, devices: [{}]}\n";

static int32_t count(const struct free_map *m, const struct fabric_part *p, int32_t type)
{
    const struct fabric *f = free_map_fabric(m);
    int32_t end = p->first_device + p->num_devices, num = 0;
    for (int32_t d = p->first_device; d < end; d++) {
        num += free_map_has(m, d) && (type < 0 || f->devices[d].type == type);
    }
    return num;
}

/* By type: each cell is a domain's devices of the type; a leaf sums its cells up. */
static void check_type(const struct free_map *m, int32_t type)
{
    const struct fabric *f = free_map_fabric(m);
    const struct free_counts *c = free_map_counts(m);
    const struct free_cells *cells = free_counts_cells(c, type);
    const int32_t *by_cell = free_counts_by_cell(c, type), *by_leaf = free_counts_by_leaf(c, type);
    const int32_t *with = free_counts_cells_with(c, type);
    int32_t num_with = 0;
    for (int32_t l = 0; l < cells->num_leaves; l++) {
        int32_t sum = 0;
        for (int32_t i = cells->leaf_cell[l]; i < cells->leaf_cell[l + 1]; i++) {
            assert_int_equal(by_cell[i], count(m, &f->domains[cells->domain[i]], type));
            assert_int_equal(free_counts_leaf(f, cells->domain[i]), cells->leaf_key[l]);
            sum += by_cell[i];
        }
        assert_int_equal(by_leaf[l], sum);
    }
    for (int32_t n = 0; n <= cells->max_devices; n++) {
        int32_t cells_with = 0;
        for (int32_t i = 0; i < cells->num_cells; i++) {
            cells_with += by_cell[i] == n;
        }
        assert_int_equal(with[n], cells_with);
        num_with += with[n];
    }
    assert_int_equal(num_with, cells->num_cells);
}

static void check_counts(const struct free_map *m)
{
    const struct fabric *f = free_map_fabric(m);
    struct fabric_part all = {.num_devices = f->num_devices};
    for (int32_t t = -1; t < f->num_types; t++) {
        assert_int_equal(free_map_num_type(m, t), count(m, &all, t));
        if (t >= 0) {
            check_type(m, t);
        }
    }
    int32_t num = 0, before = -1;
    for (int32_t d = free_map_next(m, 0, f->num_devices); d >= 0;
         d = free_map_next(m, d + 1, f->num_devices)) {
        assert_true(d > before && free_map_has(m, d));
        before = d;
        num++;
    }
    assert_int_equal(num, free_map_num(m));
}

static void play(struct fabric *f, int num_moves, int check_every)
{
    struct free_map *m = free_map_new(f);
    check_counts(m);
    for (int i = 0; i < num_moves; i++) {
        uint64_t r = (uint64_t)i * 0x9e3779b97f4a7c15u + 12345;
        r ^= r >> 29;
        r *= 0xbf58476d1ce4e5b9u;
        r ^= r >> 32;
        int32_t d = (int32_t)(r % (uint64_t)f->num_devices);
        bool had = free_map_has(m, d), take = r >> 40 & 1;
        assert_int_equal(take ? free_map_take(m, d) : free_map_give(m, d), take == had);
        assert_int_equal(free_map_has(m, d), !take);
        if (i % check_every == 0) {
            check_counts(m);
        }
    }
    check_counts(m);
    free_map_free(m);
    fabric_free(f);
}

static void counts_are_what_a_look_at_every_device_gives(void **state)
{
    (void)state;
    play(fabric_case(mixed), 500, 1);
    play(fabric_case_tree(40, 8, 2, "h100"), 2000, 100);
}

/* A what-if must not show in what it was copied from. */
static void a_copy_lives_by_itself_and_can_be_set_back(void **state)
{
    (void)state;
    struct fabric *f = fabric_case(mixed);
    struct free_map *m = free_map_new(f);
    assert_true(free_map_take(m, 3));
    struct free_map *copy = free_map_copy(m);
    assert_true(free_map_take(copy, 4));
    assert_true(free_map_give(copy, 3));
    assert_true(free_map_has(m, 4));
    assert_false(free_map_has(m, 3));
    check_counts(m);
    check_counts(copy);
    free_map_set(copy, m);
    assert_false(free_map_has(copy, 3));
    assert_int_equal(free_map_num(copy), f->num_devices - 1);
    check_counts(copy);
    free_map_free(copy);
    free_map_free(m);
    free_map_free(NULL);
    fabric_free(f);
}

static void the_next_free_one_is_found_in_a_range(void **state)
{
    (void)state;
    struct fabric *f = fabric_case_tree(40, 8, 2, "h100");
    struct free_map *m = free_map_new(f);
    for (int32_t d = 0; d < f->num_devices; d++) {
        if (d != 63 && d != 64 && d != 319) {
            assert_true(free_map_take(m, d));
        }
    }
    assert_int_equal(free_map_next(m, 0, 320), 63);
    assert_int_equal(free_map_next(m, 0, 63), -1);
    assert_int_equal(free_map_next(m, 64, 65), 64);
    assert_int_equal(free_map_next(m, 65, 320), 319);
    assert_int_equal(free_map_next(m, 65, 319), -1);
    assert_int_equal(free_map_next(m, 320, 320), -1);
    free_map_free(m);
    fabric_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_what_a_look_at_every_device_gives),
        cmocka_unit_test(a_copy_lives_by_itself_and_can_be_set_back),
        cmocka_unit_test(the_next_free_one_is_found_in_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
