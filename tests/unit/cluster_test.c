/* Cluster files: what is filled in, what is refused. */
#include "plan/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "proto/text.h"

static ClusterSpec *parse(const char *text)
{
    ProtobufCMessage *m = NULL;
    struct error err = {0};
    if (text_parse("c.yaml", text, strlen(text), &cluster_spec__descriptor, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return (ClusterSpec *)m;
}

static void assert_refused(const char *text, const char *part)
{
    ClusterSpec *c = parse(text);
    struct error err = {0};
    assert_int_equal(cluster_check("c.yaml", c, &err), -1);
    if (!strstr(err.text, part)) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    }
    cluster_spec__free_unpacked(c, NULL);
}

/* A short file is enough: indexes count up, one core a device. */
static void what_is_absent_is_filled_in(void **state)
{
    (void)state;
    ClusterSpec *c = parse("nodes: [{name: a, devices: [{}, {}, {type: h100}]}]");
    struct error err = {0};
    assert_int_equal(cluster_check("c.yaml", c, &err), 0);
    assert_int_equal(c->nodes[0]->cores, 3);
    assert_int_equal(c->nodes[0]->devices[2]->index, 2);
    assert_string_equal(c->nodes[0]->devices[2]->type, "h100");
    cluster_spec__free_unpacked(c, NULL);
}

static void the_example_is_a_good_cluster(void **state)
{
    (void)state;
    char *text;
    size_t len;
    struct error err = {0};
    assert_int_equal(
        fs_read_file(TANDEM_SOURCE_DIR "/examples/cluster.yaml", 65536, &text, &len, &err), 0);
    ClusterSpec *c = parse(text);
    assert_int_equal(cluster_check("cluster.yaml", c, &err), 0);
    assert_int_equal(c->n_nodes, 2);
    assert_int_equal(c->nodes[1]->n_devices, 2);
    cluster_spec__free_unpacked(c, NULL);
    free(text);
}

/* Ranks are placed by node name and device index: both have to be unambiguous. */
static void ambiguous_or_absurd_clusters_are_refused(void **state)
{
    (void)state;
    assert_refused("nodes: []", "0 nodes");
    assert_refused("nodes: [{devices: [{}]}]", "nodes.0.name: needed");
    assert_refused("nodes: [{name: a}]", "node a has 0 devices");
    assert_refused("nodes: [{name: a, cores: 0, devices: [{}]}]", "cores have to be 1");
    assert_refused("nodes: [{name: a, mem_bytes: -1, devices: [{}]}]", "mem_bytes 0 or more");
    assert_refused("nodes: [{name: a, devices: [{index: 1}, {}]}]", "two devices with index 1");
    assert_refused("nodes: [{name: a, devices: [{peak_flops_fp32: -1.0}]}]", "can't be negative");
    assert_refused("nodes: [{name: a, devices: [{}]}, {name: b, devices: [{}]}, "
                   "{name: a, devices: [{}]}]",
                   "two nodes are called a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_absent_is_filled_in),
        cmocka_unit_test(the_example_is_a_good_cluster),
        cmocka_unit_test(ambiguous_or_absurd_clusters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
