/* The order of the queue, and gangs that get all or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

#define HOUR_MS 3600000

static void higher_priority_starts_first_then_the_older_job(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_job(c, 1, 0, 1, 8);
    case_job(c, 2, 5, 1, 8);
    case_job(c, 3, 5, 1, 8);
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_start(c, 2));
    assert_non_null(case_start(c, 3));
    assert_int_equal(c->decisions[0].job, 1);
    case_free(c);
}

/* [24] */
static void a_priority_raised_while_it_waits_counts_at_once(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    c->options.preemption = false;
    case_run(c, 1, 0, 0, 8);
    case_job(c, 2, 0, 1, 8);
    case_job(c, 3, 0, 1, 8);
    assert_int_equal(case_pass(c), 0);
    case_find_job(c, 3)->priority = 1;
    case_gone(c, 1, false);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 3));
    case_free(c);
}

static void a_job_that_has_waited_long_overtakes_but_only_so_far(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    c->options.aging_per_h = 2;
    c->options.aging_max = 10;
    c->now_ms = 1000 * (int64_t)HOUR_MS;
    case_job(c, 2, 3, 1, 8);
    case_job(c, 3, 0, 1, 8)->waits_since_ms = c->now_ms - HOUR_MS;
    struct sched_view v = case_view(c);
    assert_true(sched_priority(&v, 1) < sched_priority(&v, 0));
    c->jobs[1].waits_since_ms = c->now_ms - 2 * HOUR_MS;
    assert_true(sched_priority(&v, 1) > sched_priority(&v, 0));
    c->jobs[0].priority = 11;
    c->jobs[1].waits_since_ms = 0;
    assert_true(sched_priority(&v, 1) < sched_priority(&v, 0));
    assert_float_equal(sched_priority(&v, 1), 10, 1e-9);
    c->jobs[1].waits_since_ms = INT64_MIN;
    assert_float_equal(sched_priority(&v, 1), 10, 1e-9);
    c->jobs[1].waits_since_ms = INT64_MAX;
    assert_float_equal(sched_priority(&v, 1), 0, 1e-9);
    case_free(c);
}

static void a_tenant_that_used_more_than_its_share_goes_behind(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    int32_t other = case_tenant(c, "other", -1, -1);
    c->options.fair_share = 10;
    c->tenants[0].usage = 3000;
    c->tenants[other].usage = 1000;
    case_job(c, 1, 0, 1, 8);
    case_job(c, 2, 0, 1, 8)->tenant = other;
    struct sched_view v = case_view(c);
    assert_float_equal(sched_priority(&v, 0), -7.5, 1e-9);
    assert_float_equal(sched_priority(&v, 1), -2.5, 1e-9);
    case_pass(c);
    assert_non_null(case_start(c, 2));
    /* Three times the weight: the same share. */
    c->tenants[0].weight = 3;
    assert_float_equal(sched_priority(&v, 0), sched_priority(&v, 1), 1e-9);
    case_free(c);
}

/* [15] */
static void of_two_gangs_that_need_all_one_starts_and_the_other_has_a_reason(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_job(c, 1, 0, 2, 8);
    case_job(c, 2, 0, 2, 8);
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(device_set_num(case_start(c, 1)->set), 16);
    case_apply(c);
    assert_int_equal(case_pass(c), 0);
    struct sched_reason why;
    case_why(c, 2, &why);
    assert_true(why.words[0] != 0);
    assert_int_equal(why.num_holders, 1);
    assert_int_equal(why.holders[0], 1);
    case_free(c);
}

static void a_job_that_is_not_ready_neither_starts_nor_holds_others_up(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_job(c, 1, 9, 1, 8)->ready = false;
    case_job(c, 2, 0, 1, 8);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 2));
    case_free(c);
}

/* [18] */
static void nothing_starts_on_drained_devices(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    c->drained[3] = true;
    case_job(c, 1, 0, 1, 8);
    case_job(c, 2, 0, 1, 8);
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 1)->set->device[0], 8);
    case_free(c);
}

/* [12] A gang of a size that can't be is passed over, and nothing overflows. */
static void sizes_that_cannot_be_are_passed_over(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_job(c, 1, 9, 1, 8)->num_devices = INT32_MAX;
    case_job(c, 2, 9, 1, 8)->num_devices = 7;
    case_job(c, 3, 9, 1, 8)->place.data = 0;
    case_job(c, 4, 9, 1, 8)->place.pipeline = INT32_MAX;
    struct sched_job *j = case_job(c, 5, 0, 1, 8);
    j->limit_ms = INT64_MAX;
    c->now_ms = INT64_MAX - 5;
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 5));
    struct sched_reason why;
    case_why(c, 1, &why);
    assert_true(why.words[0] != 0);
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(higher_priority_starts_first_then_the_older_job),
        cmocka_unit_test(a_priority_raised_while_it_waits_counts_at_once),
        cmocka_unit_test(a_job_that_has_waited_long_overtakes_but_only_so_far),
        cmocka_unit_test(a_tenant_that_used_more_than_its_share_goes_behind),
        cmocka_unit_test(of_two_gangs_that_need_all_one_starts_and_the_other_has_a_reason),
        cmocka_unit_test(a_job_that_is_not_ready_neither_starts_nor_holds_others_up),
        cmocka_unit_test(nothing_starts_on_drained_devices),
        cmocka_unit_test(sizes_that_cannot_be_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
