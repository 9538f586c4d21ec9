/* Reservations, and jobs that start in front of them without delaying them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

#define MINUTE_MS 60000

static void nobody_overtakes_on_devices_kept_for_the_first_job_that_waits(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8)->end_ms = c->now_ms + 10 * MINUTE_MS;
    case_job(c, 2, 0, 2, 8);
    case_job(c, 3, 0, 1, 8);
    assert_int_equal(case_pass(c), 0);
    struct sched_reason why;
    case_why(c, 2, &why);
    assert_int_equal(why.may_start_ms, c->now_ms + 10 * MINUTE_MS);
    assert_int_equal(why.place, 1);
    assert_string_equal(case_why(c, 3, &why),
                        "waits behind job 2, for which 16 devices are reserved; a time limit "
                        "could let it start before");
    assert_int_equal(why.place, 2);
    case_free(c);
}

/* [19] */
static void a_job_that_is_gone_in_time_may_run_on_reserved_devices(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8)->hard_end_ms = c->now_ms + 10 * MINUTE_MS;
    case_job(c, 2, 0, 2, 8);
    case_job(c, 3, 0, 1, 4)->limit_ms = 10 * MINUTE_MS + 1;
    case_job(c, 4, 0, 1, 4)->limit_ms = 10 * MINUTE_MS;
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 4)->backfills, 2);
    case_free(c);
}

static void others_start_on_devices_that_the_reserved_job_is_not_to_get(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    case_run(c, 1, 0, 0, 8)->end_ms = c->now_ms + MINUTE_MS;
    case_run(c, 2, 0, 8, 4)->end_ms = SCHED_NEVER;
    case_job(c, 3, 0, 2, 8);
    case_job(c, 4, 0, 1, 4);
    case_job(c, 5, 0, 1, 4);
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 4)->backfills, 0);
    assert_int_equal(case_start(c, 4)->set->device[0], 12);
    case_free(c);
}

/* Whole domains are kept for a gang that needs them, however many devices are free elsewhere. */
static void what_is_kept_has_the_shape_that_the_job_needs(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    c->options.preemption = false;
    case_run(c, 1, 0, 0, 4)->end_ms = c->now_ms + MINUTE_MS;
    case_run(c, 2, 0, 8, 4)->end_ms = c->now_ms + 5 * MINUTE_MS;
    case_run(c, 3, 0, 16, 4)->end_ms = SCHED_NEVER;
    case_job(c, 4, 0, 2, 8);
    for (int64_t id = 5; id <= 10; id++) {
        case_job(c, id, 0, 1, 2);
    }
    assert_int_equal(case_pass(c), 2);
    assert_true(case_start(c, 5)->set->device[0] >= 20);
    assert_true(case_start(c, 6)->set->device[0] >= 20);
    case_free(c);
}

/* [19] */
static void a_job_that_waits_for_one_type_holds_no_other_type_up(void **state)
{
    (void)state;
    struct sched_case *c = case_new_of("nodes:\n"
                                       "  - {name: a, devices: [{type: h100}, {type: h100}]}\n"
                                       "  - {name: b, devices: [{type: a100}, {type: a100}]}\n");
    case_run(c, 1, 0, 0, 1);
    case_run(c, 9, 0, 2, 1);
    case_job(c, 2, 0, 2, 1)->place.type = c->f->types[c->f->devices[0].type].name;
    case_job(c, 3, 0, 1, 1)->place.type = c->f->types[c->f->devices[0].type].name;
    case_job(c, 4, 0, 1, 1)->place.type = c->f->types[c->f->devices[2].type].name;
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 4));
    case_free(c);
}

static void a_job_pinned_to_a_node_keeps_only_that_node(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    const char *nodes[] = {"n0"};
    case_run(c, 1, 0, 0, 4);
    case_run(c, 2, 0, 8, 4);
    struct sched_job *j = case_job(c, 3, 0, 1, 8);
    j->place.nodes = nodes;
    j->place.num_nodes = 1;
    /* The next one could use the other nodes: it has a reservation of its own. */
    case_job(c, 4, 0, 2, 8);
    case_job(c, 5, 0, 1, 8);
    case_job(c, 6, 0, 1, 4);
    assert_int_equal(case_pass(c), 0);
    c->jobs[1].ready = false;
    assert_int_equal(case_pass(c), 2);
    assert_true(case_start(c, 5)->set->device[0] == 16);
    assert_true(case_start(c, 6)->set->device[0] == 12);
    case_free(c);
}

/* The end of what runs isn't known: only who can be stopped for the reserved job passes it. */
static void before_a_time_that_nobody_knows_only_jobs_with_a_limit_pass(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_job(c, 2, 0, 2, 8);
    case_job(c, 3, 0, 1, 4);
    case_job(c, 4, 0, 1, 4)->limit_ms = MINUTE_MS;
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 4)->backfills, 2);
    c->options.preemption = false;
    assert_int_equal(case_pass(c), 0);
    c->options.preemption = true;
    c->jobs[2].evictions = c->options.max_evictions;
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

/* [19] However many short jobs pass it, it starts when what it waits for is gone. */
static void backfilled_jobs_give_way_whatever_their_priority(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_job(c, 2, 0, 2, 8);
    struct sched_job *j = case_job(c, 3, -5, 1, 8);
    j->limit_ms = 600 * MINUTE_MS;
    assert_int_equal(case_pass(c), 1);
    case_apply(c);
    case_find_run(c, 3)->priority = 50;
    case_gone(c, 1, false);
    c->now_ms += MINUTE_MS;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_claim(c, 2));
    assert_non_null(case_stop(c, 3));
    case_free(c);
}

static void without_backfill_nobody_overtakes(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    c->options.backfill = false;
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 0, 8, 4)->hard_end_ms = c->now_ms + MINUTE_MS;
    case_job(c, 3, 0, 2, 8);
    case_job(c, 4, 0, 1, 4)->limit_ms = 1;
    assert_int_equal(case_pass(c), 0);
    c->options.backfill = true;
    assert_int_equal(case_pass(c), 1);
    case_free(c);
}

/* A stuck device counts for nobody's future. */
static void devices_that_do_not_come_back_are_waited_for_by_nobody(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    struct sched_run *r = case_run(c, 1, 0, 0, 8);
    r->stopping = r->is_stuck = true;
    case_run(c, 2, 0, 8, 8)->end_ms = c->now_ms + 5 * MINUTE_MS;
    case_job(c, 3, 0, 1, 8);
    assert_int_equal(case_pass(c), 0);
    struct sched_reason why;
    case_why(c, 3, &why);
    assert_int_equal(why.may_start_ms, c->now_ms + 5 * MINUTE_MS);
    case_free(c);
}

static void the_next_pass_is_due_when_a_reserved_job_could_start(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    struct sched_run *r = case_run(c, 1, 0, 0, 8);
    r->end_ms = c->now_ms + 5 * MINUTE_MS;
    case_pass(c);
    assert_true(sched_next_ms(c->s) == SCHED_NEVER);
    case_job(c, 2, 0, 1, 8);
    case_pass(c);
    assert_int_equal(sched_next_ms(c->s), c->now_ms + 5 * MINUTE_MS);
    r->started_ms = c->now_ms;
    case_pass(c);
    assert_int_equal(sched_next_ms(c->s), c->now_ms + c->options.min_run_ms);
    case_free(c);
}

/* Jobs of all limits between reservations of all times: more kinds of what is free than are kept.
 */
static void many_reservations_of_different_times_are_all_kept(void **state)
{
    (void)state;
    struct sched_case *c = case_new(24);
    const char *nodes[24];
    for (int32_t i = 0; i < 24; i++) {
        nodes[i] = c->f->nodes[i].name;
        case_run(c, 100 + i, 0, 8 * i, 6)->end_ms = c->now_ms + (i + 1) * MINUTE_MS;
        struct sched_job *j = case_job(c, 200 + i, 5, 1, 8);
        j->priority = 0;
        j->place.nodes = &nodes[i];
        j->place.num_nodes = 1;
    }
    /* Each passes those that wait as long as it runs, or longer; the longest comes first. */
    for (int32_t i = 1; i <= 24; i++) {
        case_job(c, 300 + i, 0, 1, 2)->limit_ms = (25 - i) * MINUTE_MS;
    }
    assert_int_equal(case_pass(c), 24);
    for (int32_t i = 1; i <= 24; i++) {
        const struct sched_decision *d = case_start(c, 300 + i);
        assert_non_null(d);
        assert_int_equal(d->backfills, 200 + 24 - i);
    }
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_overtakes_on_devices_kept_for_the_first_job_that_waits),
        cmocka_unit_test(a_job_that_is_gone_in_time_may_run_on_reserved_devices),
        cmocka_unit_test(others_start_on_devices_that_the_reserved_job_is_not_to_get),
        cmocka_unit_test(what_is_kept_has_the_shape_that_the_job_needs),
        cmocka_unit_test(a_job_that_waits_for_one_type_holds_no_other_type_up),
        cmocka_unit_test(a_job_pinned_to_a_node_keeps_only_that_node),
        cmocka_unit_test(before_a_time_that_nobody_knows_only_jobs_with_a_limit_pass),
        cmocka_unit_test(backfilled_jobs_give_way_whatever_their_priority),
        cmocka_unit_test(without_backfill_nobody_overtakes),
        cmocka_unit_test(devices_that_do_not_come_back_are_waited_for_by_nobody),
        cmocka_unit_test(many_reservations_of_different_times_are_all_kept),
        cmocka_unit_test(the_next_pass_is_due_when_a_reserved_job_could_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
