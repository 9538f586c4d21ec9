/* server/topology, drains and discovery: what there is, and what of it is out of use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "plan/cluster.h"
#include "server/discovery.h"
#include "server/held_set.h"
#include "server/msg.h"
#include "server/out_of_use.h"

static const struct topology_host host = {
    .node = "here", .cpu_model = "made up", .boot_id = "boot", .cores = 4, .mem_bytes = 1 << 30};

static struct topology *make(const char *text)
{
    ClusterSpec *cluster = NULL;
    struct topology *t;
    struct error err = {0};
    if (text && cluster_parse("c.yaml", text, strlen(text), &cluster, &err) != 0) {
        fail_msg("%s", err.text);
    }
    if (topology_new(&t, &host, cluster, 3, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return t;
}

static const char two_nodes[] = "nodes:\n"
                                "  - {name: a, devices: [{type: cpu, count: 4}]}\n"
                                "  - {name: here, devices: [{type: h100, count: 4}]}\n";

static void drain(struct topology *t, const char *node, int32_t device, const char *reason)
{
    struct drain_row row = {.device = device};
    snprintf(row.node, sizeof row.node, "%s", node);
    snprintf(row.reason, sizeof row.reason, "%s", reason);
    drains_put(t->drains, &row);
}

/* The reason of a device, "" where it isn't drained; the flag says the same. */
static const char *reason(const struct topology *t, const char *node, int32_t index)
{
    int32_t d = fabric_find_device(t->fabric, node, index);
    const char *words = drains_reason(t->drains, d);
    assert_true(drains_flags(t->drains)[d] == (words != NULL));
    return words ? words : "";
}

static int32_t num_drained(const struct topology *t)
{
    int32_t num = 0;
    for (int32_t i = 0; i < t->fabric->num_devices; i++) {
        num += drains_flags(t->drains)[i];
    }
    return num;
}

/* What another controller answered does as a file: whose its devices were there counts for nothing,
 * at submit as in what is shown. */
static void jobs_that_a_file_names_hold_nothing(void **state)
{
    (void)state;
    struct topology *t =
        make("nodes: [{name: a, devices: [{job_id: 7, claimed_by: -1}, {claimed_by: 3}]}]");
    ClusterSpec *m = topology_message(t, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        const DeviceInfo *in_use[] = {t->cluster->nodes[0]->devices[i], topology_device(t, m, i)};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(in_use[k]->job_id, 0);
            assert_int_equal(in_use[k]->claimed_by, 0);
        }
    }
    msg_free(m);
    topology_free(t);
}

static void without_a_file_this_host_is_one_node_of_cpus(void **state)
{
    (void)state;
    struct topology *t = make(NULL);
    assert_int_equal(t->fabric->num_devices, 3);
    assert_string_equal(t->fabric->nodes[0].name, "here");
    topology_set_peaks(t, 1e9, 2e9);
    ClusterSpec *m = topology_message(t, (const int64_t[]){0, 7, -1}, (const int64_t[]){9, 0, 0});
    assert_int_equal(m->n_nodes, 1);
    assert_string_equal(m->nodes[0]->cpu_model, "made up");
    assert_true(m->nodes[0]->devices[2]->peak_flops_fp64 == 2e9);
    assert_int_equal(topology_device(t, m, 1)->job_id, 7);
    assert_int_equal(topology_device(t, m, 2)->job_id, -1);
    assert_int_equal(topology_device(t, m, 0)->claimed_by, 9);
    msg_free(m);
    topology_free(t);
}

/* Known at the start or measured since, they are in the fabric that plans are made on, too: else
 * each plan makes a fabric of its own. */
static void peaks_are_in_the_fabric_of_plans(void **state)
{
    (void)state;
    struct topology_host measured = host;
    struct topology *t;
    measured.peak_fp32 = 3e9;
    measured.peak_fp64 = 2e9;
    assert_int_equal(topology_new(&t, &measured, NULL, 2, NULL), 0);
    assert_ptr_equal(t->plan_fabric, t->fabric);
    assert_true(t->fabric->types[0].peak_fp32 == 3e9);
    topology_free(t);
    t = make(NULL);
    assert_null(t->plan_fabric);
    topology_set_peaks(t, 3e9, 2e9);
    assert_non_null(t->plan_fabric);
    assert_true(t->plan_fabric->types[0].peak_fp32 == 3e9);
    assert_int_equal(t->plan_fabric->num_devices, t->fabric->num_devices);
    topology_free(t);
}

/* What was measured stands for CPU devices that the file says nothing of, and for no others. */
static void measured_peaks_fill_what_the_file_leaves_open(void **state)
{
    (void)state;
    struct topology *t = make("nodes:\n"
                              "  - {name: a, devices: [{type: cpu, peak_flops_fp32: 5.0}, {type: "
                              "cpu}, {type: h100}]}\n");
    double h100 = t->cluster->nodes[0]->devices[2]->peak_flops_fp32;
    topology_set_peaks(t, 1e9, 2e9);
    assert_true(t->cluster->nodes[0]->devices[0]->peak_flops_fp32 == 5.0);
    assert_true(t->cluster->nodes[0]->devices[1]->peak_flops_fp32 == 1e9);
    assert_true(t->cluster->nodes[0]->devices[2]->peak_flops_fp32 == h100);
    topology_free(t);
}

static void places_are_by_rank_and_unknown_nodes_have_a_nearest(void **state)
{
    (void)state;
    struct topology *t = make(two_nodes);
    int32_t second = fabric_find_device(t->fabric, "here", 2),
            first = fabric_find_device(t->fabric, "a", 3);
    RankPlacement **places = topology_places(t, (const int32_t[]){second, first}, 2);
    assert_string_equal(places[0]->node, "here");
    assert_int_equal(places[0]->device, 2);
    assert_string_equal(places[1]->node, "a");
    assert_int_equal(places[1]->device, 3);
    topology_free_places(places, 2);
    struct error err;
    assert_int_equal(topology_find_node(t, "hera", &err), -1);
    assert_non_null(strstr(err.text, "did you mean here?"));
    assert_true(topology_find_node(t, "a", &err) >= 0);
    topology_free(t);
}

static void drains_of_nodes_and_devices_add_up_and_come_off_one_by_one(void **state)
{
    (void)state;
    struct topology *t = make(two_nodes);
    drain(t, "a", 1, "");
    drain(t, "a", -1, "fans");
    drain(t, "a", -1, "disks"); /* once, with the last reason */
    drain(t, "gone", -1, "of an earlier file");
    drain(t, "a", 99, "of an earlier file");
    assert_int_equal(num_drained(t), 4);
    assert_string_equal(reason(t, "a", 0), "disks");
    drains_remove(t->drains, "a", -1);
    drains_remove(t->drains, "a", -1);
    assert_int_equal(num_drained(t), 1);
    assert_string_equal(reason(t, "a", 1), "drained");
    int32_t next = -1;
    assert_true(drains_next(t->drains, "a", &next) && next == 1);
    assert_true(drains_next(t->drains, "a", &next) && next == 99);
    assert_false(drains_next(t->drains, "a", &next));
    assert_non_null(drains_find(t->drains, "gone", -1));
    topology_free(t);
}

/* A batch that can't be committed leaves no drain behind, and takes none away. */
static void a_batch_that_fails_puts_drains_back(void **state)
{
    (void)state;
    struct topology *t = make(two_nodes);
    drain(t, "a", 0, "kept");
    drains_settle(t->drains);
    drain(t, "a", 1, "lost");
    drains_remove(t->drains, "a", 0);
    assert_int_equal(num_drained(t), 1);
    drains_put_back(t->drains);
    assert_int_equal(num_drained(t), 1);
    assert_string_equal(reason(t, "a", 0), "kept");
    drains_put_back(t->drains); /* nothing more */
    assert_string_equal(reason(t, "a", 0), "kept");
    topology_free(t);
}

static void what_the_file_calls_drained_stays_so(void **state)
{
    (void)state;
    struct topology *t = make("nodes: [{name: a, devices: [{drained: true}, {}]}]\n");
    assert_string_equal(reason(t, "a", 0), "the cluster file says so");
    drain(t, "a", -1, "disks");
    drains_remove(t->drains, "a", -1);
    assert_int_equal(num_drained(t), 1);
    topology_free(t);
}

static NodeInfo *report(const char *name, const int32_t *indexes, size_t num)
{
    NodeInfo *n = msg_new(&node_info__descriptor);
    msg_text(&n->name, name);
    for (size_t i = 0; i < num; i++) {
        DeviceInfo *d = msg_new(&device_info__descriptor);
        MSG_SET(d, index, indexes[i]);
        d->type = NULL;
        msg_text(&d->type, "h100");
        msg_push(&n->devices, &n->n_devices, d);
    }
    return n;
}

/* [23] */
static void a_device_that_is_not_reported_is_out_of_use_until_it_is(void **state)
{
    (void)state;
    struct topology *t = make(two_nodes);
    NodeInfo *less = report("here", (const int32_t[]){0, 1, 3}, 3);
    NodeInfo *all = report("here", (const int32_t[]){0, 1, 2, 3}, 4);
    NodeInfo *other = report("elsewhere", NULL, 0), *cpus = report("a", NULL, 0);
    assert_true(discovery_take(t, less));
    assert_false(discovery_take(t, less));
    assert_int_equal(num_drained(t), 1);
    assert_string_equal(reason(t, "here", 2), "node here reports 3 of 4 devices");
    drain(t, "here", 2, "an admin's");
    drains_remove(t->drains, "here", 2);
    assert_string_equal(reason(t, "here", 2), "node here reports 3 of 4 devices");
    assert_false(discovery_take(t, other)); /* not of this cluster */
    assert_false(discovery_take(t, cpus));  /* threads are not counted */
    assert_true(discovery_take(t, all));
    assert_int_equal(num_drained(t), 0);
    msg_free(less);
    msg_free(all);
    msg_free(other);
    msg_free(cpus);
    topology_free(t);
}

/* A gang that has no place is told of what is out of use only where that would suit it: by type and
 * by named nodes. */
static void out_of_use_is_said_of_what_suits_alone(void **state)
{
    (void)state;
    struct topology *t = make(two_nodes);
    const char *nodes[] = {"here"};
    struct place_request r = {.data = 2, .pipeline = 1, .context = 1, .tensor = 1, .expert = 1};
    char words[480];
    r.type = "any";
    r.one_node = true;
    drain(t, "a", -1, "disks");
    assert_false(out_of_use_words(t, &r, words, sizeof words)); /* there is a place */
    r.cpu_only = true;
    assert_true(out_of_use_words(t, &r, words, sizeof words));
    assert_string_equal(words, "4 of the 4 devices that suit it are out of use: a:0-3 (disks)");
    r.nodes = nodes;
    r.num_nodes = 1;
    assert_false(out_of_use_words(t, &r, words, sizeof words)); /* no CPU devices there */
    r.cpu_only = false;
    r.gpu_only = true;
    r.data = 8;
    assert_false(out_of_use_words(t, &r, words, sizeof words)); /* too few, all in use */
    drain(t, "here", 1, "fans");
    assert_true(out_of_use_words(t, &r, words, sizeof words));
    assert_string_equal(words, "1 of the 4 devices that suit it is out of use: here:1 (fans)");
    nodes[0] = "gone";
    assert_false(out_of_use_words(t, &r, words, sizeof words));
    topology_free(t);
}

/* Whatever is put, settled and put back: each set is freed once (the sanitizers look). */
static void a_held_set_is_put_back_or_settled_and_freed_once(void **state)
{
    (void)state;
    struct held_set h = {0};
    const int32_t one[] = {1}, two[] = {1, 2};
    held_set_put(&h, device_set_new(one, 1));
    assert_true(held_set_changed(&h));
    held_set_put_back(&h);
    assert_null(h.now);
    held_set_put(&h, device_set_new(one, 1));
    held_set_settle(&h);
    assert_false(held_set_changed(&h));
    held_set_put(&h, device_set_new(two, 2));
    held_set_put(&h, NULL);
    held_set_put(&h, device_set_new(two, 2));
    assert_int_equal(h.now->num, 2);
    held_set_put_back(&h);
    assert_int_equal(h.now->num, 1);
    held_set_put(&h, NULL);
    held_set_settle(&h);
    held_set_put(&h, device_set_new(two, 2));
    held_set_free(&h);
    held_set_free(&h);
    assert_null(h.now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_that_a_file_names_hold_nothing),
        cmocka_unit_test(without_a_file_this_host_is_one_node_of_cpus),
        cmocka_unit_test(peaks_are_in_the_fabric_of_plans),
        cmocka_unit_test(measured_peaks_fill_what_the_file_leaves_open),
        cmocka_unit_test(places_are_by_rank_and_unknown_nodes_have_a_nearest),
        cmocka_unit_test(drains_of_nodes_and_devices_add_up_and_come_off_one_by_one),
        cmocka_unit_test(a_batch_that_fails_puts_drains_back),
        cmocka_unit_test(what_the_file_calls_drained_stays_so),
        cmocka_unit_test(a_device_that_is_not_reported_is_out_of_use_until_it_is),
        cmocka_unit_test(out_of_use_is_said_of_what_suits_alone),
        cmocka_unit_test(a_held_set_is_put_back_or_settled_and_freed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
