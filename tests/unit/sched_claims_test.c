/* [17] Claims: what victims free stays with the job that they were stopped for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

#define MINUTE_MS 60000

/* Run 1 on node 0 and run 2 on node 1 are stopped for job 9, which needs both. */
static struct sched_case *claimed(int num_nodes)
{
    struct sched_case *c = case_new(num_nodes);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 0, 8, 8);
    for (int i = 2; i < num_nodes; i++) {
        case_run(c, 10 + i, 50, 8 * i, 8);
    }
    case_job(c, 9, 5, 2, 8);
    assert_int_equal(case_pass(c), 3);
    case_apply(c);
    return c;
}

static void what_came_free_waits_for_the_rest(void **state)
{
    (void)state;
    struct sched_case *c = claimed(2);
    case_gone(c, 1, true);
    case_job(c, 20, 100, 1, 8);
    assert_int_equal(case_pass(c), 0);
    case_gone(c, 2, true);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 9));
    case_free(c);
}

static void a_job_with_a_claim_starts_elsewhere_if_that_is_free_first(void **state)
{
    (void)state;
    struct sched_case *c = claimed(4);
    case_gone(c, 12, false);
    case_gone(c, 13, false);
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 9)->set->device[0], 16);
    /* And with the part of its claim that is free. */
    case_free(c);
    c = claimed(4);
    case_gone(c, 12, false);
    case_gone(c, 2, false);
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 9)->set->device[0], 8);
    case_free(c);
}

static void a_claim_on_a_drained_device_is_given_up_and_chosen_anew(void **state)
{
    (void)state;
    struct sched_case *c = claimed(3);
    case_gone(c, 1, false);
    case_gone(c, 2, false);
    c->drained[3] = true;
    c->runs[0].priority = 1;
    assert_int_equal(case_pass(c), 3);
    assert_int_equal(c->decisions[0].kind, SCHED_UNCLAIM);
    assert_int_equal(case_claim(c, 9)->set->device[0], 8);
    assert_non_null(case_stop(c, 12));
    case_apply(c);
    case_gone(c, 12, false);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 9));
    case_free(c);
}

static void a_claim_on_a_device_that_does_not_come_back_is_given_up(void **state)
{
    (void)state;
    struct sched_case *c = claimed(2);
    case_gone(c, 1, false);
    case_find_run(c, 2)->is_stuck = true;
    case_job(c, 20, 0, 1, 8);
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_unclaim(c, 9));
    /* Nobody knows when the rest comes: what was kept is for the next one. */
    assert_non_null(case_start(c, 20));
    case_free(c);
}

static void a_claim_that_a_run_sits_on_which_does_not_leave_is_given_up(void **state)
{
    (void)state;
    struct sched_case *c = claimed(2);
    struct sched_run *r = case_find_run(c, 2);
    r->stopping = false;
    r->yields_to = 0;
    r->can_stop = false;
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_unclaim(c, 9));
    case_free(c);
}

static void a_job_that_is_not_ready_any_more_keeps_nothing(void **state)
{
    (void)state;
    struct sched_case *c = claimed(2);
    case_find_job(c, 9)->ready = false;
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_unclaim(c, 9));
    case_free(c);
}

static void of_two_claims_on_a_device_the_later_one_is_given_up(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8)->stopping = true;
    case_job(c, 2, 0, 1, 8)->claim = case_range(0, 8);
    case_job(c, 3, 0, 1, 8)->claim = case_range(0, 8);
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_unclaim(c, 3));
    assert_non_null(case_start(c, 2));
    case_free(c);
}

static void a_claim_of_devices_that_are_not_there_is_given_up(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_run(c, 1, 0, 0, 8)->stopping = true;
    case_job(c, 2, 0, 1, 8)->claim = case_range(100, 8);
    case_job(c, 3, 0, 1, 8)->claim = case_range(0, 4);
    assert_int_equal(case_pass(c), 2);
    assert_int_equal(case_count(c, SCHED_UNCLAIM), 2);
    case_free(c);
}

static void a_claim_counts_against_its_tenants_max(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    int32_t t = case_tenant(c, "research", -1, 8);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 50, 8, 8);
    case_job(c, 3, 5, 1, 8)->tenant = t;
    case_run(c, 4, 50, 16, 8);
    assert_int_equal(case_pass(c), 2);
    case_apply(c);
    case_gone(c, 2, false);
    case_job(c, 5, 0, 1, 4)->tenant = t;
    /* The claim's own job has a place now; the other one has no right to a device. */
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 3));
    case_apply(c);
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

static void a_claim_whose_tenants_max_was_lowered_is_given_up_in_the_end(void **state)
{
    (void)state;
    struct sched_case *c = claimed(2);
    c->tenants[0].max = 8;
    assert_int_equal(case_pass(c), 0);
    case_gone(c, 1, false);
    case_gone(c, 2, false);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_unclaim(c, 9));
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_free_waits_for_the_rest),
        cmocka_unit_test(a_job_with_a_claim_starts_elsewhere_if_that_is_free_first),
        cmocka_unit_test(a_claim_on_a_drained_device_is_given_up_and_chosen_anew),
        cmocka_unit_test(a_claim_on_a_device_that_does_not_come_back_is_given_up),
        cmocka_unit_test(a_claim_that_a_run_sits_on_which_does_not_leave_is_given_up),
        cmocka_unit_test(a_job_that_is_not_ready_any_more_keeps_nothing),
        cmocka_unit_test(of_two_claims_on_a_device_the_later_one_is_given_up),
        cmocka_unit_test(a_claim_of_devices_that_are_not_there_is_given_up),
        cmocka_unit_test(a_claim_counts_against_its_tenants_max),
        cmocka_unit_test(a_claim_whose_tenants_max_was_lowered_is_given_up_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
