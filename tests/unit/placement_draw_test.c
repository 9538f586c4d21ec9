/* The picture of a placement, line by line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/cli/placement.h"
#include "proto/text.h"

static ClusterSpec *cluster(const char *text)
{
    ProtobufCMessage *m;
    struct error err = {0};
    if (text_parse("cluster", text, strlen(text), &cluster_spec__descriptor, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return (ClusterSpec *)m;
}

/* nodes of one type under a leaf each per_leaf of them, in domains of per_domain (0 = none). */
static ClusterSpec *regular(int nodes, int devices, int per_leaf, int per_domain)
{
    struct buf text = {0};
    buf_puts(&text, "nodes:\n");
    for (int n = 0; n < nodes; n++) {
        buf_printf(&text, "  - name: n%d\n    switches: [leaf%d]\n    devices:\n", n, n / per_leaf);
        for (int d = 0; d < devices; d++) {
            buf_printf(&text, "      - {index: %d, type: cpu", d);
            if (per_domain) {
                buf_printf(&text, ", domain: rack%d", n / per_domain);
            }
            buf_puts(&text, "}\n");
        }
    }
    ClusterSpec *c = cluster(text.data);
    buf_free(&text);
    return c;
}

struct names {
    char **list;
    size_t num;
};

static void add(struct names *n, int node, int device)
{
    char text[32];
    snprintf(text, sizeof text, "n%d:%d", node, device);
    n->list = realloc(n->list, (n->num + 1) * sizeof *n->list);
    assert_non_null(n->list);
    n->list[n->num] = strdup(text);
    assert_non_null(n->list[n->num++]);
}

/* Draws, compares, frees both. */
static void draws(ClusterSpec *c, struct names *n, size_t width, const char *expected)
{
    struct buf out = {0};
    placement_draw(&out, c, (const char *const *)n->list, n->num, "", width);
    assert_string_equal(out.data ? out.data : "", expected);
    buf_free(&out);
    for (size_t i = 0; i < n->num; i++) {
        free(n->list[i]);
    }
    free(n->list);
    if (c) {
        cluster_spec__free_unpacked(c, NULL);
    }
}

/* Small gangs are shown device by device, with those that they don't have. */
static void a_small_gang_is_shown_device_by_device(void **state)
{
    (void)state;
    struct names n = {0};
    for (int i = 0; i < 4; i++) {
        add(&n, i / 2, i % 2);
    }
    draws(regular(4, 4, 4, 2), &n, 100, "leaf0  domain rack0  n0 [0 1 . .]  n1 [2 3 . .]\n");
}

static void leaves_and_domains_begin_lines(void **state)
{
    (void)state;
    struct names n = {0};
    for (int i = 0; i < 8; i++) {
        add(&n, i, 1);
    }
    draws(regular(8, 2, 4, 2), &n, 100,
          "leaf0  domain rack0  n0 [. 0]  n1 [. 1]\n"
          "       domain rack1  n2 [. 2]  n3 [. 3]\n"
          "leaf1  domain rack2  n4 [. 4]  n5 [. 5]\n"
          "       domain rack3  n6 [. 6]  n7 [. 7]\n");
}

static void sixteen_devices_of_four_nodes_fit_two_lines(void **state)
{
    (void)state;
    struct names n = {0};
    for (int i = 0; i < 16; i++) {
        add(&n, i / 4, i % 4);
    }
    draws(regular(4, 4, 2, 2), &n, 100,
          "leaf0  domain rack0  n0,n1 [0-7]\nleaf1  domain rack1  n2,n3 [8-15]\n");
}

/* 1,024 devices are a line a leaf. */
static void a_thousand_devices_are_a_line_a_leaf(void **state)
{
    (void)state;
    struct names n = {0};
    for (int i = 0; i < 1024; i++) {
        add(&n, i / 8, i % 8);
    }
    draws(regular(200, 8, 32, 0), &n, 100,
          "leaf0  n0..n31 [0-255]\nleaf1  n32..n63 [256-511]\n"
          "leaf2  n64..n95 [512-767]\nleaf3  n96..n127 [768-1023]\n");
}

/* Ranks that go by steps (an axis that strides over nodes) are a range with its step. */
static void ranks_by_steps_are_a_range(void **state)
{
    (void)state;
    struct names n = {0};
    for (int i = 0; i < 16; i++) {
        add(&n, i % 2, i / 2);
    }
    draws(regular(2, 16, 2, 0), &n, 100, "leaf0  n0 [0-14/2 .x8]  n1 [1-15/2 .x8]\n");
}

static void lines_are_wrapped_where_a_node_begins(void **state)
{
    (void)state;
    struct names n = {0};
    for (int i = 0; i < 6; i++) {
        add(&n, i, 0);
    }
    draws(regular(6, 3, 6, 0), &n, 36,
          "leaf0  n0 [0 . .]  n1 [1 . .]\n       n2 [2 . .]  n3 [3 . .]\n"
          "       n4 [4 . .]  n5 [5 . .]\n");
}

/* Without the cluster, or of nodes that it doesn't know any more: as they come. */
static void nodes_that_are_not_known_come_by_rank(void **state)
{
    (void)state;
    struct names n = {0}, some = {0};
    for (int i = 0; i < 3; i++) {
        add(&n, 10 - i, 0);
        add(&n, 10 - i, 1);
    }
    draws(NULL, &n, 100, "n10 [0 1]  n9 [2 3]  n8 [4 5]\n");
    add(&some, 7, 0);
    add(&some, 0, 1);
    draws(regular(1, 2, 1, 0), &some, 100, "leaf0  n0 [. 1]\n       n7 [0]\n");
}

/* What a server sends is not trusted to be names. */
static void names_that_are_none_are_left_out(void **state)
{
    (void)state;
    struct names n = {0};
    add(&n, 1, 2);
    n.list = realloc(n.list, 5 * sizeof *n.list);
    assert_non_null(n.list);
    n.list[n.num++] = strdup("");
    n.list[n.num++] = strdup("x");
    n.list[n.num++] = strdup(":");
    n.list[n.num++] = strdup("a:b");
    draws(NULL, &n, 100, "n1 [0]\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_gang_is_shown_device_by_device),
        cmocka_unit_test(leaves_and_domains_begin_lines),
        cmocka_unit_test(sixteen_devices_of_four_nodes_fit_two_lines),
        cmocka_unit_test(a_thousand_devices_are_a_line_a_leaf),
        cmocka_unit_test(ranks_by_steps_are_a_range),
        cmocka_unit_test(lines_are_wrapped_where_a_node_begins),
        cmocka_unit_test(nodes_that_are_not_known_come_by_rank),
        cmocka_unit_test(names_that_are_none_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
