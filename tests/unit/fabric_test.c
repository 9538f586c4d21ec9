/* A cluster by numbers: order of the tree, ways between devices, sets as text. */
#include "plan/fabric.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/fabric_case.h"

/* Four nodes in an order that isn't the tree's, one of them split in two domains, two racks that
 * span nodes, and one that hangs on nothing. */
static const char mixed[] =
    "nodes:\n"
    "  - {name: a, switches: [l0, s0], devices: [{domain: a1, index: 3}, {domain: a0, index: 0},\n"
    "       {domain: a1, index: 1}, {domain: a0, index: 2}]}\n"
    "  - {name: r0, switches: [l1, s0], devices: [{type: gb200, domain: rack}]}\n"
    "  - {name: b, switches: [l0, s0], devices: [{}, {}]}\n"
    "  - {name: c, switches: [l1, s0], devices: [{type: h100}, {}]}\n"
    "  - {name: r1, switches: [l1, s0], devices: [{type: gb200, domain: rack}, {type: gb200,\n"
    "       domain: rack}]}\n"
    "  - {name: far, devices: [{}]}\n";

/* Every part is a range of devices that lies in one range of the level above: what PLACE and the
 * free map build on. */
static void check_parts(const struct fabric *f, const struct fabric_part *parts, int32_t num,
                        const struct fabric_part *above)
{
    int32_t next = 0;
    for (int32_t i = 0; i < num; i++) {
        assert_true(parts[i].first_device >= next);
        assert_true(parts[i].num_devices > 0);
        next = parts[i].first_device + parts[i].num_devices;
        assert_true(next <= f->num_devices);
        if (parts[i].up >= 0) {
            const struct fabric_part *up = &above[parts[i].up];
            assert_true(up->first_device <= parts[i].first_device);
            assert_true(up->first_device + up->num_devices >= next);
        }
    }
}

static void check_fabric(const struct fabric *f)
{
    check_parts(f, f->nodes, f->num_nodes, f->switches[0]);
    check_parts(f, f->domains, f->num_domains, f->switches[0]);
    for (int32_t l = 0; l < f->num_levels; l++) {
        check_parts(f, f->switches[l], f->num_switches[l],
                    l + 1 < f->num_levels ? f->switches[l + 1] : NULL);
    }
    for (int32_t d = 0; d < f->num_devices; d++) {
        const struct fabric_device *x = &f->devices[d];
        const struct fabric_part *n = &f->nodes[x->node], *m = &f->domains[x->domain];
        assert_in_range(d, n->first_device, n->first_device + n->num_devices - 1);
        assert_in_range(d, m->first_device, m->first_device + m->num_devices - 1);
        assert_int_equal(fabric_find_device(f, n->name, x->index), d);
    }
}

static void devices_are_numbered_in_the_order_of_the_tree(void **state)
{
    (void)state;
    struct fabric *f = fabric_case(mixed);
    check_fabric(f);
    assert_int_equal(f->num_devices, 12);
    assert_int_equal(f->num_nodes, 6);
    assert_int_equal(f->num_domains, 6);
    assert_int_equal(f->num_levels, 2);
    assert_int_equal(f->num_switches[0], 2);
    assert_int_equal(f->num_switches[1], 1);
    assert_int_equal(f->num_types, 3);
    int32_t rack = f->devices[fabric_find_device(f, "r0", 0)].domain;
    assert_string_equal(f->domains[rack].name, "rack");
    assert_int_equal(f->domains[rack].num_devices, 3);
    int32_t a0 = fabric_find_device(f, "a", 0);
    assert_int_equal(fabric_find_device(f, "a", 2), a0 + 1);
    assert_int_equal(fabric_find_device(f, "a", 4), -1);
    assert_int_equal(fabric_find_device(f, "z", 0), -1);
    assert_string_equal(f->nodes[fabric_find_node(f, "c")].name, "c");
    assert_string_equal(f->types[fabric_find_type(f, "h100")].name, "h100");
    assert_int_equal(fabric_find_type(f, "tpu"), -1);
    fabric_free(f);
}

static void a_way_is_as_long_as_the_lowest_thing_in_common(void **state)
{
    (void)state;
    struct fabric *f = fabric_case(mixed);
    int32_t a0 = fabric_find_device(f, "a", 0), a1 = fabric_find_device(f, "a", 1);
    int32_t a2 = fabric_find_device(f, "a", 2), b = fabric_find_device(f, "b", 0);
    int32_t c = fabric_find_device(f, "c", 0), far = fabric_find_device(f, "far", 0);
    int32_t r0 = fabric_find_device(f, "r0", 0), r1 = fabric_find_device(f, "r1", 1);
    assert_int_equal(fabric_link(f, a0, a0), LINK_NONE);
    assert_int_equal(fabric_link(f, a0, a2), LINK_DOMAIN);
    assert_int_equal(fabric_link(f, a0, a1), LINK_NODE);
    assert_int_equal(fabric_link(f, a0, b), LINK_LEAF);
    assert_int_equal(fabric_link(f, b, c), LINK_TREE);
    assert_int_equal(fabric_link(f, b, far), LINK_FAR);
    assert_int_equal(fabric_link(f, r0, r1), LINK_DOMAIN);
    assert_int_equal(fabric_link(f, c, r1), LINK_LEAF);
    assert_int_equal(fabric_switch(f, b, 0), f->nodes[fabric_find_node(f, "b")].up);
    assert_int_equal(fabric_switch(f, b, 1), fabric_switch(f, c, 1));
    assert_int_equal(fabric_switch(f, far, 0), -1);
    fabric_free(f);
}

/* The file says best, then the table of known types, then what was measured. */
static void figures_come_from_the_file_then_the_table(void **state)
{
    (void)state;
    struct fabric *f =
        fabric_case("nodes: [{name: a, devices: [{type: h100}, {type: h100}]},"
                    " {name: b, devices: [{peak_flops_fp32: 2.0e11}, {peak_flops_fp32: 1.0e11}]}]\n"
                    "types: [{name: h100, domain_bytes_per_s: 1.0e11}]\n"
                    "links: [{link: leaf, bytes_per_s: 1.0e9}]");
    const struct fabric_type *h100 = &f->types[fabric_find_type(f, "h100")];
    const struct fabric_type *cpu = &f->types[fabric_find_type(f, "cpu")];
    assert_true(h100->domain_bytes_per_s == 1e11);
    assert_true(h100->peak_bf16 == 989e12);
    assert_false(h100->is_cpu);
    assert_true(cpu->is_cpu);
    assert_true(cpu->peak_fp32 == 1e11);
    assert_true(f->links[LINK_LEAF].bytes_per_s == 1e9);
    assert_true(f->links[LINK_LEAF].latency_s > 0);
    assert_true(f->links[LINK_FAR].bytes_per_s > 0);
    fabric_free(f);
}

static void check_text(const struct fabric *f, const char *text, int32_t num)
{
    struct device_set *s = NULL, *again = NULL;
    struct buf out = {0};
    struct error err = {0};
    int32_t unknown = -1;
    assert_int_equal(fabric_parse_set(f, text, &s, &unknown, &err), 0);
    assert_int_equal(device_set_num(s), num);
    assert_int_equal(unknown, 0);
    fabric_print_set(f, s, &out);
    assert_int_equal(fabric_parse_set(f, out.data ? out.data : "", &again, &unknown, &err), 0);
    assert_true(device_set_equal(s, again));
    device_set_free(s);
    device_set_free(again);
    buf_free(&out);
}

static void a_set_is_written_in_runs_and_read_again(void **state)
{
    (void)state;
    struct fabric *f = fabric_case(mixed);
    check_text(f, "", 0);
    check_text(f, "a:0-3", 4);
    check_text(f, "r1:1,b:0-1,a:2", 4);
    struct device_set *s;
    struct buf out = {0};
    struct error err = {0};
    int32_t unknown;
    assert_int_equal(fabric_parse_set(f, "r0:0,b:1,b:0", &s, &unknown, &err), 0);
    fabric_print_set(f, s, &out);
    assert_string_equal(out.data, "b:0-1,r0:0");
    buf_free(&out);
    device_set_free(s);
    fabric_free(f);
}

/* A job's devices are stored by name; the cluster file may have changed since. */
static void devices_that_are_gone_are_counted(void **state)
{
    (void)state;
    struct fabric *f = fabric_case(mixed);
    struct device_set *s;
    struct error err = {0};
    int32_t unknown;
    assert_int_equal(fabric_parse_set(f, "b:1-3,gone:0-1,c:1", &s, &unknown, &err), 0);
    assert_int_equal(unknown, 4);
    assert_int_equal(device_set_num(s), 2);
    device_set_free(s);
    static const char *const bad[] = {"a",    "a:",   ":1",        "a:x",           "a:3-1",
                                      "a:0,", ",a:0", "a:0-",      "a:99999999999", "a:0,a:0",
                                      "a:0 ", "a:-1", "a:0-131072"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fabric_parse_set(f, bad[i], &s, &unknown, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    fabric_free(f);
}

static void a_big_cluster_is_a_fabric(void **state)
{
    (void)state;
    struct fabric *f = fabric_case_tree(8192, 32, 16, "h100");
    check_fabric(f);
    assert_int_equal(f->num_devices, 65536);
    assert_int_equal(f->num_switches[0], 256);
    assert_int_equal(f->num_switches[1], 16);
    assert_int_equal(fabric_link(f, 0, 65535), LINK_FAR);
    fabric_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_numbered_in_the_order_of_the_tree),
        cmocka_unit_test(a_way_is_as_long_as_the_lowest_thing_in_common),
        cmocka_unit_test(figures_come_from_the_file_then_the_table),
        cmocka_unit_test(a_set_is_written_in_runs_and_read_again),
        cmocka_unit_test(devices_that_are_gone_are_counted),
        cmocka_unit_test(a_big_cluster_is_a_fabric),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
