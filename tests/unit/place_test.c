/* What place.h says, sentence by sentence. That no placement is better: tests/place. */
#include "plan/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "plan/place_layout.h"
#include "plan/placement.h"
#include "tests/unit/fabric_case.h"

#define RANKS_MAX 64
#define THREE "groups: [{name: t, count: 3, devices: 10, type: h100}]"
#define HALVES                                                                                     \
    "groups: [{name: h, count: 2, devices: 8, type: h100}, {name: c, count: 1, devices: 4}]"

static struct place_request ask(int32_t data, int32_t pipeline, int32_t context, int32_t tensor)
{
    return (struct place_request){.data = data,
                                  .pipeline = pipeline,
                                  .context = context,
                                  .tensor = tensor,
                                  .expert = 1,
                                  .type = "any"};
}

struct scene {
    struct fabric *f;
    struct free_map *m;
    int32_t devices[RANKS_MAX];
    PlacementScore score;
    struct place_lack lack;
};

static struct scene scene(const char *cluster)
{
    struct scene s = {.f = fabric_case(cluster)};
    s.m = free_map_new(s.f);
    return s;
}

static void end(struct scene *s)
{
    free_map_free(s->m);
    fabric_free(s->f);
}

static void take(struct scene *s, int32_t first, int32_t num)
{
    for (int32_t d = first; d < first + num; d++) {
        assert_true(free_map_take(s->m, d));
    }
}

static void assert_words(struct scene *s, struct place_request r, enum place_result result,
                         const char *words)
{
    char text[256];
    assert_int_equal(place_find(s->m, &r, s->devices, NULL, &s->lack), result);
    assert_int_equal(place_find(s->m, &r, s->devices, NULL, NULL), result);
    assert_int_equal(place_fits(s->m, &r), result == PLACE_OK);
    place_lack_words(&s->lack, result, text, sizeof text);
    assert_string_equal(text, words);
}

/* [16] */
static void a_lack_is_said_with_what_is_needed_and_what_there_is(void **state)
{
    (void)state;
    struct scene s = scene(HALVES);
    struct place_request r = ask(1, 1, 1, 8);
    take(&s, 0, 4);
    take(&s, 8, 4);
    assert_words(&s, r, PLACE_FRAGMENTED, "fragmented: needs 1 x 8 in a fast domain, has 2 x 4");
    assert_int_equal(s.lack.free, 8);
    r = ask(3, 1, 1, 3);
    assert_words(&s, r, PLACE_FEW, "needs 9 devices, 8 of 16 are free");
    r = ask(2, 1, 1, 3);
    r.type = "h100";
    assert_words(&s, r, PLACE_OK, "it has a place");
    r = ask(4, 1, 1, 2);
    take(&s, 4, 1);
    assert_words(&s, r, PLACE_FEW, "needs 8 devices, 7 of 16 are free");
    free_map_give(s.m, 8);
    assert_words(&s, r, PLACE_FRAGMENTED, "fragmented: needs 4 x 2 in fast domains, has 3 x 2");
    r = ask(17, 1, 1, 1);
    assert_words(&s, r, PLACE_NEVER, "needs 17 devices, the cluster has 16");
    r.type = "cpu";
    assert_words(&s, r, PLACE_NEVER, "needs 17 devices of type cpu, the cluster has 4");
    r = ask(2, 1, 1, 5);
    r.type = "cpu";
    assert_words(&s, r, PLACE_NEVER, "needs 10 devices of type cpu, the cluster has 4");
    r = ask(1, 1, 1, 9);
    assert_words(&s, r, PLACE_NEVER, "needs 1 x 9 in a fast domain, the cluster has room for 0");
    r = ask(1 << 17, 2, 1, 1);
    assert_int_equal(place_find(s.m, &r, s.devices, NULL, NULL), PLACE_NEVER);
    assert_false(place_fits(s.m, &r));
    end(&s);
}

static void assert_nearest(struct scene *s, struct place_request r, const JobSpec *spec,
                           const char *words)
{
    char text[128] = "";
    bool found = place_nearest(s->f, &r, spec, text, sizeof text);
    assert_int_equal(found, words != NULL);
    if (words) {
        assert_string_equal(text, words);
    }
}

/* [22] Fewer data ranks, then a smaller tensor axis; the batch has to come out whole. */
static void the_nearest_shape_that_fits_is_named(void **state)
{
    (void)state;
    struct scene s = scene(THREE);
    JobSpec spec = JOB_SPEC__INIT;
    TrainingSpec training = TRAINING_SPEC__INIT;
    spec.training = &training;
    training.has_global_batch_size = training.has_micro_batch_size = 1;
    training.micro_batch_size = 1;
    training.global_batch_size = 12;
    assert_nearest(&s, ask(12, 1, 1, 8), &spec, "parallel.data: 3");
    assert_nearest(&s, ask(12, 1, 1, 8), NULL, "parallel.data: 3");
    training.global_batch_size = 16;
    assert_nearest(&s, ask(16, 1, 1, 8), &spec, "parallel.data: 2");
    training.micro_batch_size = 8;
    assert_nearest(&s, ask(2, 3, 1, 8), &spec, "parallel.data: 1");
    training.micro_batch_size = 1;
    assert_nearest(&s, ask(1, 1, 1, 16), &spec, "parallel.tensor: 8");
    assert_nearest(&s, ask(4, 1, 1, 16), &spec, "parallel.tensor: 8 with parallel.data: 2");
    assert_nearest(&s, ask(1, 32, 1, 1), &spec, NULL);
    struct place_request r = ask(8, 1, 1, 4);
    r.expert = 4; /* of four data ranks: eight or four, and only six groups fit */
    assert_nearest(&s, r, NULL, "parallel.data: 4");
    r = ask(64, 1, 1, 1);
    r.cpu_only = true;
    assert_nearest(&s, r, NULL, NULL);
    end(&s);
}

/* The same devices free: the same place, whatever was taken and given before. */
static void the_same_free_devices_give_the_same_place(void **state)
{
    (void)state;
    struct scene s = scene(HALVES);
    struct place_request r = ask(3, 1, 1, 2);
    int32_t other[RANKS_MAX];
    take(&s, 2, 3);
    assert_int_equal(place_find(s.m, &r, s.devices, &s.score, NULL), PLACE_OK);
    struct free_map *m = free_map_copy(s.m);
    for (int round = 0; round < 3; round++) {
        for (int32_t d = 15; d >= 0; d--) {
            free_map_take(m, d);
        }
        for (int32_t d = 0; d < 16; d++) {
            if (free_map_has(s.m, d)) {
                free_map_give(m, d);
            }
        }
        assert_int_equal(place_find(m, &r, other, NULL, NULL), PLACE_OK);
        assert_memory_equal(other, s.devices, 6 * sizeof *other);
    }
    free_map_set(m, s.m);
    assert_int_equal(place_find(m, &r, other, NULL, NULL), PLACE_OK);
    assert_memory_equal(other, s.devices, 6 * sizeof *other);
    free_map_free(m);
    end(&s);
}

/* One type, tensor groups in one domain; the rest is a matter of the score. */
static void a_given_placement_is_scored_or_breaks_a_hard_rule(void **state)
{
    (void)state;
    struct scene s = scene(HALVES);
    struct place_request r = ask(2, 1, 1, 2);
    PlacementScore score;
    int32_t split[] = {6, 8, 0, 1}, two_types[] = {0, 1, 16, 17}, fine[] = {6, 7, 8, 9};
    assert_int_equal(s.f->num_devices, 20);
    assert_false(place_score(s.f, &r, split, s.m, &score));
    assert_false(place_score(s.f, &r, two_types, s.m, &score));
    assert_true(place_score(s.f, &r, fine, s.m, &score));
    assert_int_equal(score.domains, 2);
    assert_int_equal(score.fragments, 12);
    /* It may have been taken already. */
    take(&s, 6, 4);
    assert_true(place_score(s.f, &r, fine, s.m, &score));
    assert_int_equal(score.fragments, 12);
    assert_true(place_score(s.f, &r, fine, NULL, &score));
    end(&s);
}

/* Each part of a score counts only among equals of those before it. */
static void scores_compare_part_by_part(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) {
        PlacementScore a = PLACEMENT_SCORE__INIT, b = PLACEMENT_SCORE__INIT;
        int64_t *of_a[] = {&a.expert_broken, &a.context_broken, &a.shard_broken, &a.pipeline_broken,
                           &a.leaves,        &a.domains,        &a.fragments};
        int64_t *of_b[] = {&b.expert_broken, &b.context_broken, &b.shard_broken, &b.pipeline_broken,
                           &b.leaves,        &b.domains,        &b.fragments};
        *of_b[i] = 1;
        for (int j = i + 1; j < 7; j++) {
            *of_a[j] = 100;
        }
        assert_int_equal(place_score_compare(&a, &b), -1);
        assert_int_equal(place_score_compare(&b, &a), 1);
        *of_b[i] = 0;
        assert_int_equal(place_score_compare(&a, &a), 0);
    }
}

/* Each rank is laid once; a tier's blocks are whole expert groups, contexts and shards. */
static void columns_are_all_ranks_once(void **state)
{
    (void)state;
    static const int32_t sizes[][5] = {/* data, context, expert, shard, first tier */
                                       {12, 1, 4, 6, 12}, {12, 2, 4, 3, 12}, {8, 4, 2, 1, 4},
                                       {8, 4, 8, 2, 8},   {8, 4, 16, 2, 16}, {6, 1, 1, 3, 3},
                                       {5, 3, 1, 1, 3},   {7, 1, 7, 1, 7},   {4, 4, 1, 4, 16}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int32_t *n = sizes[i];
        struct place_request r = ask(n[0], 3, n[1], 2);
        struct place_layout l;
        bool seen[RANKS_MAX] = {false};
        r.expert = n[2];
        r.shard = n[3];
        assert_true(place_layout_init(&l, &r));
        assert_int_equal(l.num_columns, n[0] * n[1]);
        assert_int_equal(l.tier[0], n[4]);
        assert_int_equal(l.tier[l.num_tiers - 1], 1);
        for (int32_t c = 0; c < l.num_columns; c++) {
            int32_t data, context;
            place_layout_column(&l, c, &data, &context);
            assert_in_range(data, 0, n[0] - 1);
            assert_in_range(context, 0, n[1] - 1);
            assert_false(seen[data * n[1] + context]);
            seen[data * n[1] + context] = true;
        }
    }
}

/* An expert axis or shard that doesn't divide is none, not a crash. */
static void sizes_that_do_not_go_together_make_no_groups(void **state)
{
    (void)state;
    struct scene s = scene(HALVES);
    struct place_request r = ask(4, 1, 2, 1);
    int32_t ranks[RANKS_MAX];
    r.expert = 3;
    r.shard = 3;
    assert_int_equal(place_group(&r, AXIS_EXPERT, 5, ranks), 1);
    assert_int_equal(ranks[0], 5);
    assert_int_equal(place_find(s.m, &r, s.devices, &s.score, NULL), PLACE_OK);
    assert_int_equal(s.score.expert_broken, 0);
    end(&s);
}

/* A job's words become a request; the backend says which devices. */
static void a_request_follows_from_the_job(void **state)
{
    (void)state;
    JobSpec spec = JOB_SPEC__INIT;
    ParallelChoice choice = PARALLEL_CHOICE__INIT;
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    ResourcesSpec resources = RESOURCES_SPEC__INIT;
    struct place_request r;
    assert_false(placement_request(&r, &spec, NULL, 0));
    spec.parallel = &choice;
    spec.resources = &resources;
    choice.choice_case = PARALLEL_CHOICE__CHOICE_LAYOUT;
    choice.layout = &layout;
    layout.data = 4;
    layout.tensor = 2;
    layout.shard_size = 2;
    resources.type = (char *)"h100";
    assert_true(placement_request(&r, &spec, "cuda", 7));
    assert_int_equal(r.data * 100 + r.pipeline * 10 + r.tensor, 412);
    assert_int_equal(r.shard, 2);
    assert_true(r.gpu_only && !r.cpu_only && r.mem_bytes == 7);
    assert_string_equal(r.type, "h100");
    assert_true(placement_request(&r, &spec, "ref", 0));
    assert_true(r.cpu_only && !r.gpu_only);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lack_is_said_with_what_is_needed_and_what_there_is),
        cmocka_unit_test(the_nearest_shape_that_fits_is_named),
        cmocka_unit_test(the_same_free_devices_give_the_same_place),
        cmocka_unit_test(a_given_placement_is_scored_or_breaks_a_hard_rule),
        cmocka_unit_test(scores_compare_part_by_part),
        cmocka_unit_test(columns_are_all_ranks_once),
        cmocka_unit_test(sizes_that_do_not_go_together_make_no_groups),
        cmocka_unit_test(a_request_follows_from_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
