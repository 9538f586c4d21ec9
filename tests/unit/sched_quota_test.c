/* Quotas: what is a tenant's own, what it borrows, and who gets it back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

static void a_tenant_borrows_what_is_free_and_the_start_says_so(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    int32_t t = case_tenant(c, "research", 8, -1);
    case_job(c, 1, 0, 1, 8)->tenant = t;
    case_job(c, 2, 0, 1, 8)->tenant = t;
    case_pass(c);
    assert_false(case_start(c, 1)->borrowed);
    assert_true(case_start(c, 2)->borrowed);
    case_free(c);
}

static void nobody_holds_more_than_its_max(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    int32_t t = case_tenant(c, "research", 8, 16);
    for (int64_t id = 1; id <= 3; id++) {
        case_job(c, id, 0, 1, 8)->tenant = t;
    }
    case_job(c, 4, -1, 1, 8);
    assert_int_equal(case_pass(c), 3);
    assert_null(case_start(c, 3));
    assert_non_null(case_start(c, 4));
    case_apply(c);
    struct sched_reason why;
    assert_string_equal(case_why(c, 3, &why),
                        "needs 8 devices, tenant research holds 16 of at most 16");
    assert_int_equal(why.num_holders, 2);
    case_free(c);
}

/* [13] */
static void a_quota_lowered_under_use_stops_starts_and_no_run(void **state)
{
    (void)state;
    struct sched_case *c = case_new(4);
    int32_t t = case_tenant(c, "research", 4, 12);
    case_run(c, 1, 0, 0, 8)->tenant = t;
    case_run(c, 2, 0, 8, 8)->tenant = t;
    case_job(c, 3, 0, 1, 1)->tenant = t;
    assert_int_equal(case_pass(c), 0);
    struct sched_reason why;
    assert_string_equal(case_why(c, 3, &why),
                        "needs 1 device, tenant research holds 16 of at most 12 (over by 4)");
    case_free(c);
}

static void a_job_larger_than_its_max_is_told_so(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_job(c, 1, 0, 2, 8)->tenant = case_tenant(c, "small", -1, 8);
    assert_int_equal(case_pass(c), 0);
    struct sched_reason why;
    assert_string_equal(case_why(c, 1, &why), "needs 16 devices, tenant small may hold at most 8");
    case_free(c);
}

/* What still fits into the quota is own, in the order of priority, then age; a large run that
 * doesn't fit leaves room for those behind it. */
static void the_least_important_runs_are_the_borrowed_ones(void **state)
{
    (void)state;
    struct sched_case *c = case_new(4);
    int32_t t = case_tenant(c, "research", 8, -1);
    case_run(c, 1, 5, 0, 4)->tenant = t;
    struct sched_run *young = case_run(c, 2, 5, 4, 4);
    young->tenant = t;
    young->started_ms += 1000;
    case_run(c, 3, 9, 8, 16)->tenant = t;
    case_run(c, 4, 5, 24, 4)->tenant = t;
    case_run(c, 5, 0, 28, 4);
    struct sched_view v = case_view(c);
    bool borrowed[5];
    sched_borrowed(&v, borrowed);
    const bool want[] = {false, true, true, false, false};
    assert_memory_equal(borrowed, want, sizeof want);
    /* One that leaves anyway makes room for another. */
    c->runs[0].stopping = true;
    sched_borrowed(&v, borrowed);
    const bool then[] = {true, false, true, false, false};
    assert_memory_equal(borrowed, then, sizeof then);
    case_free(c);
}

static void a_tenant_gets_its_quota_back_from_a_borrower_of_higher_priority(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    int32_t lender = case_tenant(c, "lender", 8, -1), other = case_tenant(c, "other", 8, -1);
    case_run(c, 1, 100, 0, 8)->tenant = other;
    case_run(c, 2, 50, 8, 8)->tenant = other;
    case_job(c, 3, 0, 1, 8)->tenant = lender;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_claim(c, 3));
    assert_non_null(case_stop(c, 2));
    case_free(c);
}

static void a_quota_is_taken_back_from_borrowers_before_the_pool(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    int32_t lender = case_tenant(c, "lender", 16, -1), other = case_tenant(c, "other", 0, -1);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 50, 8, 8)->tenant = other;
    case_job(c, 3, 0, 1, 8)->tenant = lender;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_stop(c, 2));
    case_apply(c);
    case_job(c, 4, 0, 1, 8)->tenant = lender;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_stop(c, 1));
    case_free(c);
}

static void a_tenant_beyond_its_quota_takes_nothing_back(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    int32_t lender = case_tenant(c, "lender", 8, -1), other = case_tenant(c, "other", 0, -1);
    case_run(c, 1, 0, 0, 8)->tenant = lender;
    case_run(c, 2, 0, 8, 8)->tenant = other;
    case_job(c, 3, 0, 1, 8)->tenant = lender;
    assert_int_equal(case_pass(c), 0);
    /* By priority it may: the other one has no guarantee there. */
    case_find_job(c, 3)->priority = 1;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_stop(c, 2));
    case_free(c);
}

static void no_priority_takes_what_is_within_another_tenants_quota(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_run(c, 1, 0, 0, 8)->tenant = case_tenant(c, "owner", 8, -1);
    case_job(c, 2, 1000, 1, 8);
    case_job(c, 3, 1000, 1, 8)->tenant = case_tenant(c, "other", 8, -1);
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

/* Two that each stop the other for ever would be the end of all progress. */
static void nobody_who_lost_borrowed_devices_gets_them_back_by_force(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    int32_t lender = case_tenant(c, "lender", 8, -1), other = case_tenant(c, "other", 0, -1);
    case_run(c, 1, 100, 0, 8)->tenant = other;
    case_job(c, 2, 0, 1, 8)->tenant = lender;
    assert_int_equal(case_pass(c), 2);
    case_apply(c);
    case_gone(c, 1, true);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 2));
    case_apply(c);
    c->now_ms += 3600000;
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

/* At its max, a tenant's urgent job may have its own lesser one's devices. */
static void at_its_max_a_tenants_job_stops_only_its_own(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    int32_t t = case_tenant(c, "research", 0, 8);
    case_run(c, 1, 0, 0, 8)->tenant = t;
    case_run(c, 2, 0, 8, 8);
    case_job(c, 3, 5, 1, 8)->tenant = t;
    assert_int_equal(case_pass(c), 2);
    assert_non_null(case_stop(c, 1));
    case_apply(c);
    assert_int_equal(case_pass(c), 0);
    case_gone(c, 1, false);
    assert_int_equal(case_pass(c), 1);
    assert_non_null(case_start(c, 3));
    case_free(c);
}

/* The first in the queue has no right to what it waits for; who has doesn't wait behind it. */
static void a_quota_is_not_held_up_by_the_reservation_of_one_that_has_none(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    int32_t lender = case_tenant(c, "lender", 8, -1), other = case_tenant(c, "other", 0, -1);
    case_run(c, 1, 90, 0, 8)->tenant = other;
    case_run(c, 2, 90, 8, 4)->tenant = other;
    case_job(c, 3, 50, 2, 8);
    struct sched_job *j = case_job(c, 4, 0, 1, 8);
    j->tenant = lender;
    case_job(c, 5, 0, 1, 2)->tenant = lender;
    /* Job 3 has all devices reserved. */
    assert_int_equal(case_pass(c), 2);
    assert_int_equal(device_set_num(case_claim(c, 4)->set), 8);
    case_find_job(c, 4)->ready = false;
    assert_int_equal(case_pass(c), 1);
    assert_int_equal(case_start(c, 5)->backfills, 0);
    /* Within its quota, job 3 would be waited for. */
    c->tenants[0].quota = 16;
    case_find_run(c, 1)->can_stop = false;
    assert_int_equal(case_pass(c), 0);
    case_free(c);
}

/* [12] Sums of sizes near the largest number don't turn negative. */
static void quotas_near_the_largest_number_are_large(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    int32_t t = case_tenant(c, "big", INT64_MAX, INT64_MAX);
    c->tenants[t].usage = 1e308;
    case_job(c, 1, INT32_MAX, 1, 8)->tenant = t;
    assert_int_equal(case_pass(c), 1);
    assert_false(case_start(c, 1)->borrowed);
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_borrows_what_is_free_and_the_start_says_so),
        cmocka_unit_test(nobody_holds_more_than_its_max),
        cmocka_unit_test(a_quota_lowered_under_use_stops_starts_and_no_run),
        cmocka_unit_test(a_job_larger_than_its_max_is_told_so),
        cmocka_unit_test(the_least_important_runs_are_the_borrowed_ones),
        cmocka_unit_test(a_tenant_gets_its_quota_back_from_a_borrower_of_higher_priority),
        cmocka_unit_test(a_quota_is_taken_back_from_borrowers_before_the_pool),
        cmocka_unit_test(a_tenant_beyond_its_quota_takes_nothing_back),
        cmocka_unit_test(no_priority_takes_what_is_within_another_tenants_quota),
        cmocka_unit_test(nobody_who_lost_borrowed_devices_gets_them_back_by_force),
        cmocka_unit_test(at_its_max_a_tenants_job_stops_only_its_own),
        cmocka_unit_test(a_quota_is_not_held_up_by_the_reservation_of_one_that_has_none),
        cmocka_unit_test(quotas_near_the_largest_number_are_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
