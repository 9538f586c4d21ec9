/* Why a job waits, who is in the way, and what is not told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

#define MINUTE_MS 60000

/* [16] */
static void devices_that_are_free_but_not_together_are_called_fragmented(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    c->options.preemption = false;
    case_run(c, 1, 0, 0, 4);
    case_run(c, 2, 0, 12, 4);
    case_job(c, 3, 0, 1, 8);
    struct sched_reason why;
    assert_string_equal(case_why(c, 3, &why),
                        "fragmented: needs 1 x 8 in a fast domain, has 2 x 4");
    assert_int_equal(why.num_holders, 1);
    assert_int_equal(why.holders[0], 1);
    assert_int_equal(why.place, 1);
    case_free(c);
}

static void too_few_free_devices_are_counted_and_drained_ones_named(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 6)->end_ms = c->now_ms + 7 * MINUTE_MS;
    c->drained[14] = c->drained[15] = true;
    case_job(c, 2, 0, 12, 1);
    struct sched_reason why;
    assert_string_equal(case_why(c, 2, &why), "needs 12 devices, 8 of 16 are free (2 are drained)");
    assert_int_equal(why.may_start_ms, c->now_ms + 7 * MINUTE_MS);
    case_free(c);
}

/* It isn't promised, but it may: nothing in front of it wants these devices. */
static void a_job_without_a_reservation_may_start_when_others_that_are_enough_end(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    for (int32_t i = 0; i < 3; i++) {
        case_run(c, 1 + i, 0, 8 * i, 8)->end_ms = c->now_ms + (i + 1) * MINUTE_MS;
    }
    case_job(c, 11, 0, 2, 8);
    case_job(c, 12, 0, 1, 8);
    case_job(c, 13, 0, 2, 8);
    struct sched_reason why;
    case_why(c, 11, &why);
    assert_int_equal(why.may_start_ms, c->now_ms + 2 * MINUTE_MS);
    case_why(c, 12, &why);
    assert_int_equal(why.may_start_ms, c->now_ms + 3 * MINUTE_MS);
    case_why(c, 13, &why);
    assert_true(why.may_start_ms == SCHED_NEVER);
    case_free(c);
}

/* Eight are free, four on each of two nodes: nobody reaches two nodes at once. When job 1 is over
 * there is a node for it. */
static void a_gang_of_one_node_waits_for_a_node(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    c->options.preemption = false;
    case_run(c, 1, 0, 0, 4)->end_ms = c->now_ms + MINUTE_MS;
    case_run(c, 2, 0, 12, 4);
    case_job(c, 3, 0, 8, 1)->place.one_node = true;
    case_job(c, 4, 0, 12, 1)->place.one_node = true;
    struct sched_reason why;
    case_pass(c);
    assert_null(case_start(c, 3));
    assert_string_equal(case_why(c, 3, &why),
                        "fragmented: needs 8 devices on one node, has at most 4 on one");
    assert_int_equal(why.may_start_ms, c->now_ms + MINUTE_MS);
    assert_string_equal(case_why(c, 4, &why),
                        "needs 12 devices on one node, no node has more than 8");
    assert_true(why.may_start_ms == SCHED_NEVER);
    case_gone(c, 1, false);
    case_pass(c);
    const struct sched_decision *start = case_start(c, 3);
    assert_non_null(start);
    for (int i = 0; i < 8; i++) {
        assert_true(start->devices[i] < 8);
    }
    case_free(c);
}

/* Stopping job 2 alone would make eight free on two nodes, and no room. */
static void a_victim_of_a_gang_of_one_node_makes_a_node_free(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    case_run(c, 1, 0, 0, 4);
    case_run(c, 2, 0, 8, 4);
    case_run(c, 3, 0, 20, 4);
    case_job(c, 4, 5, 8, 1)->place.one_node = true;
    case_pass(c);
    assert_int_equal(case_count(c, SCHED_STOP), 1);
    const struct sched_decision *claim = case_claim(c, 4);
    assert_non_null(claim);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(claim->set->device[i] / 8, claim->set->device[0] / 8);
    }
    case_free(c);
}

static void a_size_that_never_fits_is_said_to_be_too_large(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_job(c, 1, 0, 1, 16);
    case_job(c, 2, 0, 24, 1);
    struct sched_reason why;
    assert_string_equal(case_why(c, 1, &why), "needs 16 devices, the cluster has 8");
    assert_true(why.may_start_ms == SCHED_NEVER);
    assert_string_equal(case_why(c, 2, &why), "needs 24 devices, the cluster has 8");
    case_free(c);
}

static void a_job_waits_for_those_that_stop_for_it(void **state)
{
    (void)state;
    struct sched_case *c = case_new(2);
    case_run(c, 1, 0, 0, 8);
    case_run(c, 2, 0, 12, 4);
    case_job(c, 3, 5, 2, 8);
    struct sched_reason why;
    assert_string_equal(case_why(c, 3, &why),
                        "12 of the 16 devices kept for it are still held by jobs that stop for "
                        "it");
    case_pass(c);
    case_apply(c);
    case_gone(c, 1, false);
    assert_string_equal(case_why(c, 3, &why),
                        "4 of the 16 devices kept for it are still held by jobs that stop for it");
    assert_int_equal(why.num_holders, 1);
    assert_int_equal(why.holders[0], 2);
    assert_int_equal(why.may_start_ms, c->now_ms + c->options.grace_ms);
    case_free(c);
}

/* [14] What is another tenant's has no number here, and is counted once. */
static void jobs_of_others_are_not_named(void **state)
{
    (void)state;
    struct sched_case *c = case_new(3);
    c->options.preemption = false;
    for (int64_t id = 501; id <= 503; id++) {
        struct sched_run *r = case_run(c, id, 0, 8 * ((int32_t)id - 501), 7);
        r->hidden = id != 502;
        r->end_ms = c->now_ms + MINUTE_MS;
    }
    case_job(c, 601, 0, 3, 8)->hidden = true;
    case_job(c, 602, 0, 1, 8);
    case_job(c, 603, 0, 1, 1);
    struct sched_reason why;
    case_why(c, 602, &why);
    assert_int_equal(why.num_holders, 2);
    assert_true(why.holders[0] == -1 && why.holders[1] == 502);
    assert_int_equal(why.place, 2);
    assert_string_equal(case_why(c, 603, &why),
                        "waits behind another tenant's job, for which 24 devices are reserved; a "
                        "time limit could let it start before");
    assert_int_equal(why.num_holders, 1);
    assert_true(why.holders[0] == -1);
    case_free(c);
}

static void a_job_that_starts_or_is_not_ready_says_so(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    case_job(c, 1, 0, 1, 8);
    case_job(c, 2, 9, 1, 8)->ready = false;
    case_job(c, 3, 0, 1, 8);
    struct sched_reason why;
    assert_string_equal(case_why(c, 1, &why), "is about to start");
    assert_int_equal(why.may_start_ms, c->now_ms);
    case_why(c, 2, &why);
    assert_non_null(strstr(why.words, "isn't ready"));
    /* Who is about to start is in the way already. */
    assert_string_equal(case_why(c, 3, &why), "needs 8 devices, 0 of 8 are free");
    assert_int_equal(why.num_holders, 1);
    assert_int_equal(why.holders[0], 1);
    case_free(c);
}

static void no_more_holders_are_named_than_there_is_room_for(void **state)
{
    (void)state;
    struct sched_case *c = case_new(8);
    c->options.preemption = false;
    for (int32_t i = 0; i < 32; i++) {
        case_run(c, 1 + i, 0, 2 * i, 2);
    }
    case_job(c, 99, 0, 8, 8);
    struct sched_reason why;
    assert_string_equal(case_why(c, 99, &why), "needs 64 devices, 0 of 64 are free");
    assert_int_equal(why.num_holders, 16);
    case_free(c);
}

/* What it can see of it: names of tenants may be long, words are cut. */
static void words_are_cut_where_there_is_no_room(void **state)
{
    (void)state;
    struct sched_case *c = case_new(1);
    char name[2000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    case_job(c, 1, 0, 1, 8)->tenant = case_tenant(c, name, 0, 4);
    struct sched_reason why;
    assert_int_equal(strlen(case_why(c, 1, &why)), sizeof why.words - 1);
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_are_free_but_not_together_are_called_fragmented),
        cmocka_unit_test(too_few_free_devices_are_counted_and_drained_ones_named),
        cmocka_unit_test(a_job_without_a_reservation_may_start_when_others_that_are_enough_end),
        cmocka_unit_test(a_gang_of_one_node_waits_for_a_node),
        cmocka_unit_test(a_victim_of_a_gang_of_one_node_makes_a_node_free),
        cmocka_unit_test(a_size_that_never_fits_is_said_to_be_too_large),
        cmocka_unit_test(a_job_waits_for_those_that_stop_for_it),
        cmocka_unit_test(jobs_of_others_are_not_named),
        cmocka_unit_test(a_job_that_starts_or_is_not_ready_says_so),
        cmocka_unit_test(no_more_holders_are_named_than_there_is_room_for),
        cmocka_unit_test(words_are_cut_where_there_is_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
