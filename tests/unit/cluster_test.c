/* Cluster files: what is filled in, what is expanded, what is refused and where. */
#include "plan/cluster.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/cluster_host.h"
#include "plan/device_types.h"
#include "plan/fabric.h"
#include "proto/text.h"

static ClusterSpec *parse(const char *text)
{
    ClusterSpec *c = NULL;
    struct error err = {0};
    if (cluster_parse("c.yaml", text, strlen(text), &c, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return c;
}

/* The error has to say part. */
static void assert_refused(const char *text, const char *part)
{
    ClusterSpec *c = NULL;
    struct error err = {0};
    assert_int_equal(cluster_parse("c.yaml", text, strlen(text), &c, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    if (!strstr(err.text, part) || strncmp(err.text, "c.yaml", 6) != 0) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    }
}

static const DeviceType *type_of(const ClusterSpec *c, const char *name)
{
    for (size_t i = 0; i < c->n_types; i++) {
        if (strcmp(c->types[i]->name, name) == 0) {
            return c->types[i];
        }
    }
    fail_msg("type %s isn't described", name);
    return NULL;
}

/* A short file is enough: indexes count up, one core a device, memory is the type's. */
static void what_is_absent_is_filled_in(void **state)
{
    (void)state;
    ClusterSpec *c = parse("nodes: [{name: a, devices: [{}, {}, {type: h100}]}]");
    assert_int_equal(c->nodes[0]->cores, 3);
    assert_int_equal(c->nodes[0]->devices[2]->index, 2);
    assert_string_equal(c->nodes[0]->devices[2]->type, "h100");
    assert_int_equal(c->nodes[0]->devices[2]->mem_bytes, 80000000000);
    assert_false(c->nodes[0]->devices[0]->has_mem_bytes);
    assert_true(type_of(c, "h100")->peak_flops_bf16 == 989e12);
    assert_true(type_of(c, "cpu")->domain_bytes_per_s > 0);
    cluster_spec__free_unpacked(c, NULL);
}

static void counts_are_expanded_and_indexes_count_on(void **state)
{
    (void)state;
    ClusterSpec *c = parse("nodes: [{name: a, devices: [{count: 2, domain: d}, "
                           "{index: 8, count: 3, type: a100, reason: r}, {}]}]");
    static const int32_t indexes[] = {0, 1, 8, 9, 10, 5};
    assert_int_equal(c->nodes[0]->n_devices, 6);
    assert_int_equal(c->nodes[0]->cores, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(c->nodes[0]->devices[i]->index, indexes[i]);
        assert_int_equal(c->nodes[0]->devices[i]->count, 1);
    }
    assert_string_equal(c->nodes[0]->devices[1]->domain, "d");
    assert_string_equal(c->nodes[0]->devices[4]->type, "a100");
    cluster_spec__free_unpacked(c, NULL);
}

static void groups_become_nodes_with_switches_and_domains(void **state)
{
    (void)state;
    ClusterSpec *c = parse("groups: [{name: g, count: 8, devices: 2, type: gb200, nics: 2, "
                           "nic_bytes_per_s: 1.0e9, nodes_per_domain: 2, nodes_per_leaf: 2, "
                           "leaves_per_spine: 2}, {name: s, count: 2, devices: 1}]");
    assert_int_equal(c->n_nodes, 10);
    assert_int_equal(c->n_groups, 0);
    const NodeInfo *n = c->nodes[5];
    assert_string_equal(n->name, "g5");
    assert_int_equal(n->cores, 2);
    assert_int_equal(n->nics, 2);
    assert_int_equal(n->n_switches, 3);
    assert_string_equal(n->switches[0], "g-leaf2");
    assert_string_equal(n->switches[1], "g-spine1");
    assert_string_equal(n->switches[2], "g-core0");
    assert_string_equal(n->devices[1]->domain, "g-domain2");
    assert_int_equal(c->nodes[9]->n_switches, 1);
    assert_null(c->nodes[9]->devices[0]->domain);
    cluster_spec__free_unpacked(c, NULL);
}

/* The server checks what it stored; a Plan request may bring what `nodes` gave. */
static void checking_again_changes_nothing(void **state)
{
    (void)state;
    ClusterSpec *c = parse("groups: [{name: g, count: 3, devices: 2, type: h100}]\n"
                           "nodes: [{name: a, devices: [{count: 2}, {type: own}]}]\n"
                           "types: [{name: own}]");
    struct buf before = {0}, after = {0};
    struct error err = {0};
    text_to_json(&before, &c->base, 0);
    assert_int_equal(cluster_check("c.yaml", c, &err), 0);
    text_to_json(&after, &c->base, 0);
    assert_string_equal(before.data, after.data);
    buf_free(&before);
    buf_free(&after);
    cluster_spec__free_unpacked(c, NULL);
}

/* Every known type has the figures that memory and cost are reckoned from. */
static void known_types_have_figures(void **state)
{
    (void)state;
    for (size_t i = 0; device_types_names[i]; i++) {
        DeviceType t = DEVICE_TYPE__INIT;
        t.name = (char *)(uintptr_t)device_types_names[i];
        assert_true(device_types_fill(&t));
        assert_true(t.domain_bytes_per_s > 0 && t.domain_latency_s > 0);
        if (strcmp(t.name, "cpu") != 0) {
            assert_true(t.mem_bytes > 0 && t.mem_bytes_per_s > t.domain_bytes_per_s);
            assert_true(t.peak_flops_bf16 > t.peak_flops_fp32);
            assert_true(t.peak_flops_fp32 > 0 && t.peak_flops_fp64 > 0);
        }
    }
}

static void every_example_is_a_good_cluster(void **state)
{
    (void)state;
    glob_t files;
    assert_int_equal(glob(TANDEM_SOURCE_DIR "/examples/cluster*.yaml", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 5);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        ClusterSpec *c;
        struct fabric *f = NULL;
        struct error err = {0};
        if (cluster_read(files.gl_pathv[i], &c, &err) != 0 || fabric_new(&f, c, &err) != 0) {
            fail_msg("%s", err.text);
        }
        const char *name = strrchr(files.gl_pathv[i], '/') + 1;
        if (strcmp(name, "cluster-dgx.yaml") == 0) {
            assert_int_equal(f->num_devices, 16384);
            assert_int_equal(f->num_domains, 2048);
            assert_int_equal(f->num_levels, 3);
        } else if (strcmp(name, "cluster-nvl72.yaml") == 0) {
            assert_int_equal(f->num_domains, 8);
            assert_int_equal(f->domains[7].num_devices, 72);
        } else if (strcmp(name, "cluster-this-host.yaml") == 0) {
            assert_int_equal(f->num_nodes, 4);
            assert_int_equal(f->num_domains, 2);
            assert_int_equal(f->num_devices, 16);
        }
        fabric_free(f);
        cluster_spec__free_unpacked(c, NULL);
    }
    globfree(&files);
}

/* Ranks are placed by node name and device index: both have to be unambiguous. */
static void ambiguous_or_absurd_clusters_are_refused(void **state)
{
    (void)state;
    assert_refused("nodes: []", "0 nodes");
    assert_refused("nodes: [{devices: [{}]}]", "nodes.0.name: needed");
    assert_refused("nodes: [{name: 'a:b', devices: [{}]}]", "nodes.0.name: needed");
    assert_refused("nodes: [{name: a}]", "node a has 0 devices");
    assert_refused("nodes: [{name: a, cores: 0, devices: [{}]}]", "cores have to be 1");
    assert_refused("nodes: [{name: a, mem_bytes: -1, devices: [{}]}]", "mem_bytes 0 or more");
    assert_refused("nodes: [{name: a, devices: [{index: 1}, {}]}]", "two devices with index 1");
    assert_refused("nodes: [{name: a, devices: [{index: 131071, count: 2}]}]",
                   "count on to 131072");
    assert_refused("nodes: [{name: a, devices: [{peak_flops_fp32: -1.0}]}]",
                   "nodes.0.devices.0.peak_flops_fp32: 0 (not known), or 1 to 1e24");
    assert_refused("nodes: [{name: a, devices: [{peak_flops_bf16: 1.0e-300}]}]", "or 1 to 1e24");
    assert_refused("nodes: [{name: a, nic_bytes_per_s: 1e300, devices: [{}]}]", "or 1 to 1e24");
    assert_refused("nodes: [{name: a, devices: [{}]}]\ntypes: [{name: t, domain_latency_s: 1e300}]",
                   "types.0.domain_latency_s: 0 to 1e6 seconds");
    assert_refused("nodes: [{name: a, nics: -1, devices: [{}]}]", "nodes.0.nics: 0 to 1024");
    assert_refused("nodes: [{name: a, devices: [{}]}, {name: b, devices: [{}]}, "
                   "{name: a, devices: [{}]}]",
                   "nodes.2.name: two nodes are called a");
    assert_refused("nodes: [{name: g1, devices: [{}]}]\ngroups: [{name: g, count: 2, devices: 1}]",
                   "groups.0: two nodes are called g1");
    assert_refused("links: [{link: road}]\nnodes: [{name: a, devices: [{}]}]",
                   "links.0.link: node, leaf, tree or far");
    assert_refused("links: [{link: far, bytes_per_s: 0.0}]\nnodes: [{name: a, devices: [{}]}]",
                   "links.0.bytes_per_s: 1 to 1e24");
    assert_refused("links: [{link: far}, {link: far}]\nnodes: [{name: a, devices: [{}]}]",
                   "links.1.link: this link is described twice");
    assert_refused("types: [{name: x}, {name: x}]\nnodes: [{name: a, devices: [{}]}]",
                   "types.1.name: this type is described twice");
}

/* A few words of a file mustn't become a million messages. */
static void sizes_are_bounded_before_anything_is_expanded(void **state)
{
    (void)state;
    assert_refused("groups: [{name: g, count: 65536, devices: 3}]", "more than 65536 nodes or");
    assert_refused("groups: [{name: g, count: 65536, devices: 1}, {name: h, count: 1, devices: 1}]",
                   "groups.1.count: more than");
    assert_refused("groups: [{name: g, count: 2000000000, devices: 2000000000}]",
                   "groups.0.count: 1 to 65536");
    assert_refused("groups: [{name: g, count: 0, devices: 1}]", "groups.0.count");
    assert_refused("nodes: [{name: a, devices: [{count: 131072}, {}]}]",
                   "nodes.0.devices.1: more than 131072 devices");
    assert_refused("nodes: [{name: a, devices: [{count: 2000000000}]}]", "devices.0.count");
    assert_refused("nodes: [{name: a, devices: [{}], switches: [a, b, c, d, e, f, g]}]",
                   "at most 6 levels");
}

static void unknown_types_are_refused_with_those_known(void **state)
{
    (void)state;
    assert_refused("nodes: [{name: a, devices: [{type: h10}]}]\ntypes: [{name: own}]",
                   "type h10 isn't known (cpu, a100, h100, h200, b200, gb200, a100-40gb, ");
    assert_refused("nodes: [{name: a, devices: [{type: h10}]}]\ntypes: [{name: own}]",
                   "geforce-rtx-5090, own are): did you mean h100? Else `types` can describe it");
    assert_refused("groups: [{name: g, count: 1, devices: 1, type: tpu}]",
                   "geforce-rtx-5090 are); `types` can describe it");
    assert_refused("groups: [{name: g, count: 1, devices: 1, type: tpu}]",
                   "groups.0.type: type tpu");
    ClusterSpec *c = parse("nodes: [{name: a, devices: [{type: tpu}]}]\n"
                           "types: [{name: tpu, mem_bytes: 5}]");
    assert_int_equal(c->nodes[0]->devices[0]->mem_bytes, 5);
    cluster_spec__free_unpacked(c, NULL);
}

static void switches_have_to_be_a_tree(void **state)
{
    (void)state;
    assert_refused("nodes: [{name: a, devices: [{}], switches: [l0, s0]},\n"
                   "  {name: b, devices: [{}], switches: [l0, s1]}]",
                   "nodes.1.switches: l0 hangs on s1 here and on s0 elsewhere");
    assert_refused("nodes: [{name: a, devices: [{}], switches: [l0, s0]},\n"
                   "  {name: b, devices: [{}], switches: [l0]}]",
                   "l0 hangs on nothing here and on s0 elsewhere");
    assert_refused("nodes: [{name: a, devices: [{}], switches: [l0, s0]},\n"
                   "  {name: b, devices: [{}], switches: [s0]}]",
                   "s0 is on level 0 here and on level 1 elsewhere");
    assert_refused("nodes: [{name: a, devices: [{}], switches: [l0, l0]}]", "comes twice");
}

/* NVL72: one domain, 18 nodes, one leaf. */
static void a_domain_spans_whole_nodes_under_one_leaf(void **state)
{
    (void)state;
    ClusterSpec *c = parse("nodes: [{name: a, devices: [{domain: r, count: 2}]},\n"
                           "  {name: b, devices: [{domain: r, count: 2}]}]");
    cluster_spec__free_unpacked(c, NULL);
    assert_refused("nodes: [{name: a, devices: [{domain: r}], switches: [l0]},\n"
                   "  {name: b, devices: [{domain: r}], switches: [l1]}]",
                   "domain r is under l1 here and, with node a, under l0");
    assert_refused("nodes: [{name: a, devices: [{domain: r}, {domain: own}]},\n"
                   "  {name: b, devices: [{domain: r}]}]",
                   "domain r spans nodes, so all devices of node a have to be in it");
    assert_refused("groups: [{name: g, count: 36, devices: 4, type: gb200, nodes_per_domain: 18,"
                   " nodes_per_leaf: 4}]",
                   "groups.0.nodes_per_leaf: 0 (all), or a multiple of nodes_per_domain");
}

/* People mend files by line. */
static void errors_have_line_and_column(void **state)
{
    (void)state;
    assert_refused("nodes:\n  - name: a\n    devices:\n      - {}\n      - {mem_bytes: -1}\n",
                   "c.yaml:5:10: nodes.0.devices.1.mem_bytes: can't be negative");
    assert_refused("groups:\n  - name: g\n    count: 0\n    devices: 1\n",
                   "c.yaml:3:5: groups.0.count: 1 to 65536");
    assert_refused("nodes:\n  - nam: a\n", "c.yaml:2");
    ClusterSpec *c;
    struct error err = {0};
    assert_int_equal(cluster_read("/nonexistent/c.yaml", &c, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* ---- a host against its file ---- */

static void add_line(void *where, const char *words)
{
    buf_printf(where, "%s\n", words);
}

/* Both are cluster files; the host is the only node of its own. */
static void assert_differences(const char *file, const char *host, const char *wanted)
{
    ClusterSpec *told = parse(file), *found = parse(host);
    struct buf said = {0};
    cluster_host_compare(told, found->nodes[0], add_line, &said);
    assert_string_equal(said.data ? said.data : "", wanted);
    buf_free(&said);
    cluster_spec__free_unpacked(told, NULL);
    cluster_spec__free_unpacked(found, NULL);
}

/* A dead card, the wrong one or a missing bridge is told before a job finds out. */
static void a_host_that_is_not_as_described_is_told(void **state)
{
    (void)state;
    static const char told[] = "nodes: [{name: h, devices: [{type: h100, count: 4}]}]";
    assert_differences(told, told, "");
    assert_differences(told,
                       "nodes: [{name: h, devices: [{type: h100, count: 2}, {type: h200, index: 2},"
                       " {type: h100, index: 4}]}]",
                       "node h: device 2 is of type h200, the cluster file says h100\n"
                       "node h: device 3 (h100) is not found\n"
                       "node h: device 4 (h100) is found and not in the cluster file\n");
    assert_differences(told,
                       "nodes: [{name: h, devices: [{type: h100, count: 2, domain: a},"
                       " {type: h100, index: 2, domain: b}, {type: h100, index: 3, domain: a,"
                       " mem_bytes: 1000}]}]",
                       "node h: devices 0 and 2 share a fast domain in the cluster file and no "
                       "NVLink\n"
                       "node h: device 3 has 1000 bytes of memory, the cluster file says "
                       "80000000000\n");
    assert_differences(told, "nodes: [{name: h, devices: [{}]}]",
                       "node h: no GPU is found of the cluster file's 4: is NVIDIA's driver "
                       "installed, and what does nvidia-smi say?\n");
    assert_differences(told, "nodes: [{name: other, devices: [{type: h100, count: 4}]}]",
                       "other has 4 GPUs, and no node of the cluster file is called so\n");
    assert_differences("nodes: [{name: a, cores: 4, mem_bytes: 3000000000, devices: [{}]},"
                       " {name: b, cores: 4, mem_bytes: 3000000000, devices: [{}]}]",
                       "nodes: [{name: h, cores: 6, mem_bytes: 4000000000, devices: [{}]}]",
                       "the nodes of CPU devices have 8 cores together, this host has 6\n"
                       "the nodes of CPU devices have 6 GB of memory together, this host has 4\n");
}

static void differences_are_bounded(void **state)
{
    (void)state;
    struct buf said = {0};
    ClusterSpec *told = parse("nodes: [{name: h, devices: [{type: h100, count: 1000}]}]");
    ClusterSpec *found = parse("nodes: [{name: h, devices: [{type: h100, index: 1000}]}]");
    cluster_host_compare(told, found->nodes[0], add_line, &said);
    assert_non_null(
        strstr(said.data, "device 31 (h100) is not found\nthere are more differences\n"));
    assert_null(strstr(said.data, "device 32"));
    buf_free(&said);
    cluster_spec__free_unpacked(told, NULL);
    cluster_spec__free_unpacked(found, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_absent_is_filled_in),
        cmocka_unit_test(counts_are_expanded_and_indexes_count_on),
        cmocka_unit_test(groups_become_nodes_with_switches_and_domains),
        cmocka_unit_test(checking_again_changes_nothing),
        cmocka_unit_test(known_types_have_figures),
        cmocka_unit_test(every_example_is_a_good_cluster),
        cmocka_unit_test(ambiguous_or_absurd_clusters_are_refused),
        cmocka_unit_test(sizes_are_bounded_before_anything_is_expanded),
        cmocka_unit_test(unknown_types_are_refused_with_those_known),
        cmocka_unit_test(switches_have_to_be_a_tree),
        cmocka_unit_test(a_domain_spans_whole_nodes_under_one_leaf),
        cmocka_unit_test(errors_have_line_and_column),
        cmocka_unit_test(a_host_that_is_not_as_described_is_told),
        cmocka_unit_test(differences_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
