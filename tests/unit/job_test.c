/* server/job: the table of moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/job.h"

/* The table itself, written a second time as a picture: a move more or less is a decision. */
static void only_these_moves_are_allowed(void **state)
{
    (void)state;
    /* to:                              Q  H  St R  Sg P  Su F  C */
    static const int want[9][9] = {
        /* QUEUED */ {0, 1, 1, 0, 0, 1, 0, 1, 1},
        /* HELD */ {1, 0, 0, 0, 0, 0, 0, 1, 1},
        /* STARTING */ {1, 0, 0, 1, 1, 0, 0, 1, 0},
        /* RUNNING */ {1, 0, 0, 0, 1, 0, 1, 1, 0},
        /* STOPPING */ {1, 1, 0, 0, 1, 1, 1, 1, 1},
        /* PAUSED */ {1, 0, 0, 0, 0, 0, 0, 1, 1},
        /* SUCCEEDED */ {0, 0, 0, 0, 0, 0, 0, 0, 0},
        /* FAILED */ {1, 0, 0, 0, 0, 0, 0, 0, 0},
        /* CANCELLED */ {1, 0, 0, 0, 0, 0, 0, 0, 0},
    };
    for (int from = 0; from < 9; from++) {
        for (int to = 0; to < 9; to++) {
            assert_int_equal(job_may_move((JobState)(from + 1), (JobState)(to + 1)),
                             want[from][to]);
        }
    }
    assert_false(job_may_move((JobState)0, JOB_QUEUED));
    assert_false(job_may_move(JOB_QUEUED, (JobState)10));
    assert_false(job_may_move((JobState)-1, (JobState)-1));
}

/* What has finished stays finished. */
static void ends_are_succeeded_failed_and_cancelled(void **state)
{
    (void)state;
    for (int s = JOB_QUEUED; s <= JOB_CANCELLED; s++) {
        assert_int_equal(job_state_is_end((JobState)s), s >= JOB_SUCCEEDED);
    }
    assert_string_equal(job_state_name(JOB_RUNNING), "RUNNING");
}

/* One slow step of many says nothing of what is left; a change that stays is seen within a minute.
 */
static void the_pace_is_that_of_the_last_seconds(void **state)
{
    (void)state;
    struct job_pace p = {0};
    job_pace_add(&p, 900); /* the first is slow */
    assert_true(p.step_ms == 900);
    for (int i = 0; i < 60 * 200; i++) {
        job_pace_add(&p, 5);
    }
    assert_true(p.step_ms > 4.9 && p.step_ms < 6);
    job_pace_add(&p, 1000);
    assert_true(p.step_ms < 7);
    for (int i = 0; i < 60; i++) {
        job_pace_add(&p, 1000);
    }
    assert_true(p.step_ms > 500);
    /* Where a step takes minutes it is the last ones alone. */
    for (int i = 0; i < 3; i++) {
        job_pace_add(&p, 120000);
    }
    assert_true(p.step_ms > 110000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_these_moves_are_allowed),
        cmocka_unit_test(ends_are_succeeded_failed_and_cancelled),
        cmocka_unit_test(the_pace_is_that_of_the_last_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
