/* Preemption: for whom, of whom, and how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

#define MINUTE_MS 60000

static void a_job_of_higher_priority_gets_the_devices_of_a_lower_one(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 3, 0, 8);
    case_run(c, 2, 1, 8, 8);
    case_job(c, 3, 5, 1, 8);
    assert_int_equal(case_pass(c), 2);
    assert_int_equal(c->decisions[0].kind, SCHED_CLAIM);
    assert_int_equal(c->decisions[1].kind, SCHED_STOP);
    assert_int_equal(c->decisions[1].run, 1);
    assert_int_equal(case_claim(c, 3)->set->device[0], 8);
    case_free(c);
}

static void nobody_is_stopped_where_enough_is_free_or_preemption_is_off(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_job(c, 2, 5, 1, 8);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 2));
    case_run(c, 3, 0, 8, 8);
    assert_int_equal(case_pass(c), 2);
    c->options.preemption = false;
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

static void no_more_are_stopped_than_are_needed(void **state)
{
    (void)state;
    struct sched_case *c = case_new(4);
    for (int64_t id = 1; id <= 3; id++) {
        case_run(c, id, (int32_t)id, 8 * ((int32_t)id - 1), 8);
    }
    case_job(c, 9, 10, 2, 8);
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_stop(c, 1));
    assert_int_equal(device_set_num(case_claim(c, 9)->set), 16);
    case_free(c);
}

/* Lesser ones whose devices turn out to be of no help run on. */
static void whoever_is_not_in_the_way_of_the_place_chosen_runs_on(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 4);
    case_run(c, 2, 8, 4, 4)->evictions = 3;
    case_run(c, 3, 1, 8, 4);
    case_run(c, 4, 2, 12, 4);
    case_job(c, 9, 5, 1, 8);
    assert_int_equal(case_pass(c), 3);
    assert_null(case_stop(c, 1));
    assert_non_null(case_stop(c, 3));
    assert_non_null(case_stop(c, 4));
    case_free(c);
}

static void nobody_is_stopped_in_vain(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 9, 8, 8);
    case_job(c, 3, 5, 2, 8);
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

/* [11] */
static void two_jobs_never_count_the_same_victim(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 9, 8, 8);
    case_job(c, 3, 5, 1, 8);
    case_job(c, 4, 5, 1, 8);
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_claim(c, 3));
    case_apply(c);
    assert_int_equal(case_pass(c), 0);
    case_gone(c, 1, true);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 3));
    case_free(c);
}

/* [11] Two halves of one victim, though, are room for two. */
static void what_a_victim_frees_beyond_the_claim_is_there_for_the_next(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 1, 8, 8);
    case_job(c, 3, 5, 1, 4);
    case_job(c, 4, 5, 1, 4);
    assert_int_equal(case_pass(c), 2);
    case_apply(c);
    assert_int_equal(case_pass(c), 0);
    case_gone(c, 1, false);
    assert_int_equal(case_pass(c), 2);
    assert_int_equal(case_count(c, SCHED_START), 2);
    case_free(c);
}

static void a_run_that_leaves_anyway_spares_another(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8)->stopping = true;
    case_run(c, 2, 0, 8, 8);
    case_job(c, 3, 5, 1, 8);
    assert_int_equal(case_pass(c), 0);
    struct sched_reason why;
    case_why(c, 3, &why);
    assert_int_equal(why.may_start_ms, c->now_ms + c->options.grace_ms);
    case_free(c);
}

/* [17] */
static void a_victim_that_was_stopped_often_enough_runs_on(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_run(c, 1, 0, 0, 8);
    int64_t urgent = 100;
    for (int round = 0; round < 3; round++) {
        case_job(c, urgent, 5, 1, 8);
        assert_int_equal(case_pass(c), 2);
        case_apply(c);
        case_gone(c, 1, true);
        assert_int_equal(case_pass(c), 1);
        assert_non_null(case_start(c, urgent));
        case_apply(c);
        case_gone(c, urgent++, false);
        assert_int_equal(case_pass(c), 1);
        assert_non_null(case_start(c, 1));
        case_apply(c);
        c->now_ms += 10 * MINUTE_MS;
    }
    assert_int_equal(case_find_run(c, 1)->evictions, 3);
    case_job(c, urgent, 5, 1, 8);
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

/* A high priority behind one that aged: it doesn't take what the earlier one is about to get. */
static void nobody_takes_by_force_what_is_reserved_for_an_earlier_job(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    c->options.aging_per_h = 10;
    c->options.aging_max = 50;
    case_run(c, 1, 7, 0, 8)->end_ms = c->now_ms + 5 * MINUTE_MS;
    case_job(c, 2, 5, 1, 8)->waits_since_ms = c->now_ms - (int64_t)10 * 3600000;
    case_job(c, 3, 10, 1, 8);
    assert_int_equal(case_pass(c), 0);
    case_find_job(c, 2)->ready = false;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_claim(c, 3));
    case_free(c);
}

/* However many wait, one pass stops runs for a few; the next ones go on. */
static void a_pass_makes_room_for_a_few_and_the_next_for_more(void **state)
{
    (void)state;
    struct sched_case *c = case_new(12);
    for (int64_t id = 1; id <= 12; id++) {
        case_run(c, id, 0, 8 * ((int32_t)id - 1), 8);
        case_job(c, 100 + id, 5, 1, 8);
    }
    case_pass(c);
    assert_int_equal(case_count(c, SCHED_CLAIM), 8);
    case_apply(c);
    case_pass(c);
    assert_int_equal(case_count(c, SCHED_CLAIM), 4);
    case_apply(c);
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_of_higher_priority_gets_the_devices_of_a_lower_one),
        cmocka_unit_test(nobody_is_stopped_where_enough_is_free_or_preemption_is_off),
        cmocka_unit_test(no_more_are_stopped_than_are_needed),
        cmocka_unit_test(whoever_is_not_in_the_way_of_the_place_chosen_runs_on),
        cmocka_unit_test(nobody_is_stopped_in_vain),
        cmocka_unit_test(two_jobs_never_count_the_same_victim),
        cmocka_unit_test(what_a_victim_frees_beyond_the_claim_is_there_for_the_next),
        cmocka_unit_test(a_run_that_leaves_anyway_spares_another),
        cmocka_unit_test(a_victim_that_was_stopped_often_enough_runs_on),
        cmocka_unit_test(nobody_takes_by_force_what_is_reserved_for_an_earlier_job),
        cmocka_unit_test(a_pass_makes_room_for_a_few_and_the_next_for_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
