/* Placement as a part of the plan: found or given, its axis groups, and what is said where there is
 * no place. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/spec_unbuilt.h"
#include "tests/unit/fabric_case.h"
#include "tests/unit/plan_case.h"

#define LARGE                                                                                      \
    "groups: [{name: n, count: 2048, devices: 8, type: h100, nodes_per_leaf: 32, "                 \
    "leaves_per_spine: 8, nics: 4, nic_bytes_per_s: 5.0e10}]"
#define FOUR "groups: [{name: n, count: 4, devices: 4, nodes_per_domain: 2, nodes_per_leaf: 2}]"
#define THREE "groups: [{name: t, count: 3, devices: 10, type: h100}]"

static struct plan_case *c;
static struct fabric *f;
static struct spec_unbuilt unbuilt;

static void use(const char *cluster)
{
    fabric_free(f);
    f = fabric_case(cluster);
    c->input.cluster = f->spec;
    c->input.fabric = f;
}

static void shape(int64_t data, int64_t pipeline, int64_t context, int64_t tensor)
{
    c->layout.data = data;
    c->layout.pipeline = pipeline;
    c->layout.context = context;
    c->layout.tensor = tensor;
    c->layout.has_pipeline = c->layout.has_context = c->layout.has_tensor = 1;
}

static int setup(void **state)
{
    (void)state;
    c = plan_case_new();
    c->input.unbuilt = &unbuilt;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_case_free(c);
    fabric_free(f);
    f = NULL;
    spec_unbuilt_free(&unbuilt);
    unbuilt = (struct spec_unbuilt){0};
    return 0;
}

static const AxisGroup *group_of(const Plan *p, Axis axis)
{
    for (size_t i = 0; i < p->n_groups; i++) {
        if (p->groups[i]->axis == axis) {
            return p->groups[i];
        }
    }
    fail_msg("no such group");
    return NULL;
}

/* The 405B job: 16,384 ranks, tensor in a node, pipelines under a leaf, still below 1 MiB. */
static void a_large_plan_knows_its_links(void **state)
{
    (void)state;
    plan_case_config(c, 126, 16384, 53248, 128, 8, 128256);
    c->config.has_max_position_embeddings = 1;
    c->config.max_position_embeddings = 131072;
    use(LARGE);
    shape(128, 16, 1, 8);
    c->training.seq_len = 2048;
    c->training.global_batch_size = 2048;
    c->training.precision = (char *)"bf16";
    c->layout.has_zero_stage = 1;
    c->layout.zero_stage = 1;
    c->resources.type = (char *)"h100";
    c->data_facts.num_tokens = 15600000000000;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->n_placement, 16384);
    assert_true(plan__get_packed_size(p) < 1 << 20);
    assert_int_equal(p->n_groups, 3);
    const AxisGroup *t = group_of(p, AXIS_TENSOR), *pp = group_of(p, AXIS_PIPELINE),
                    *d = group_of(p, AXIS_DATA);
    assert_int_equal(t->worst, LINK_DOMAIN);
    assert_int_equal(t->in_domain, 2048);
    assert_int_equal(pp->worst, LINK_LEAF);
    assert_int_equal(pp->in_leaf, 1024);
    assert_int_equal(d->worst, LINK_TREE);
    /* Four cards of 50 GB/s, shared by eight devices. */
    assert_true(pp->bytes_per_s == 25e9);
    assert_int_equal(p->score->pipeline_broken, 0);
    assert_int_equal(p->score->leaves, 64);
    assert_int_equal(p->score->fragments, 0);
    assert_true(p->peak_flops == 989e12);
    plan__free_unpacked(p, NULL);
}

/* The scheduler's word, rank by rank; but no plan is made of what breaks a hard rule. */
static void a_given_placement_keeps_its_order_and_the_hard_rules(void **state)
{
    (void)state;
    RankPlacement places[4];
    const RankPlacement *list[4];
    static const char *const nodes[] = {"n1", "n0", "n3", "n3"};
    use(FOUR);
    shape(2, 1, 1, 2);
    for (int i = 0; i < 4; i++) {
        rank_placement__init(&places[i]);
        places[i].node = (char *)(uintptr_t)nodes[i];
        places[i].device = i;
        list[i] = &places[i];
    }
    c->input.placement = list;
    Plan *p = plan_case_build(c);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(p->placement[i]->node, nodes[i]);
        assert_int_equal(p->placement[i]->device, i);
        assert_int_equal(p->placement[i]->local_rank, i == 3);
        assert_int_equal(p->placement[i]->local_ranks, i < 2 ? 1 : 2);
    }
    assert_int_equal(group_of(p, AXIS_TENSOR)->worst, LINK_DOMAIN);
    assert_int_equal(group_of(p, AXIS_DATA)->worst, LINK_TREE);
    assert_int_equal(p->score->domains, 2);
    assert_int_equal(p->score->fragments, 12);
    plan__free_unpacked(p, NULL);
    places[1].node = (char *)"n2";
    plan_case_refused(c, "a tensor group in two fast domains");
}

/* [16] [22] */
static void no_place_is_said_with_the_nearest(void **state)
{
    (void)state;
    use(THREE);
    shape(4, 1, 1, 8);
    c->training.global_batch_size = 12;
    c->resources.type = (char *)"h100";
    plan_case_refused(c, "resources.devices: 32 wanted, the cluster has 30 of type h100; "
                         "parallel.data: 3 fits");
    shape(2, 2, 1, 8);
    plan_case_refused(c, "resources.devices: 32 wanted");
    shape(6, 1, 1, 4);
    Plan *p = plan_case_build(c);
    plan__free_unpacked(p, NULL);
    c->training.global_batch_size = 84;
    shape(7, 1, 1, 4);
    plan_case_refused(c, "parallel.tensor: 7 x 4 devices wanted, each 4 in one fast domain; the "
                         "cluster has room for 6 x 4 of type h100; parallel.data: 6 fits");
    for (int n = 0; n < 3; n++) {
        for (int i = 0; i < 5; i++) {
            f->spec->nodes[n]->devices[i]->drained = 1;
        }
    }
    shape(1, 1, 1, 8);
    plan_case_refused(c, "resources.devices: 8 wanted, the cluster has 30 of type h100, 15 of them "
                         "are free, but fragmented: needs 1 x 8 in a fast domain, has 3 x 5");
    c->resources.backend = (char *)"cpu";
    plan_case_refused(c, "of type h100 that resources.backend cpu runs on");
    c->resources.type = (char *)"any";
    plan_case_refused(c, "the cluster has 0 of type cpu, all that backend cpu runs on");
}

/* What is said to fit keeps to the schedule's rules, too: of 99 samples, 9 data ranks would have 11
 * each, which interleaved over 3 stages can't do. */
static void the_nearest_keeps_to_the_schedule(void **state)
{
    (void)state;
    use(THREE);
    plan_case_config(c, 6, 64, 136, 8, 4, 256);
    shape(11, 3, 1, 1);
    c->training.global_batch_size = 99;
    c->resources.type = (char *)"h100";
    plan_case_refused(c, "parallel.data: 9 fits");
    c->layout.schedule = (char *)"interleaved";
    plan_case_refused(c, "parallel.data: 3 fits");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_large_plan_knows_its_links),
        T(a_given_placement_keeps_its_order_and_the_hard_rules),
        T(no_place_is_said_with_the_nearest),
        T(the_nearest_keeps_to_the_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
