/* server/supervisor: what is done when something happens to a job. No process, no clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "server/job.h"
#include "server/supervisor.h"

static struct supervisor_view running(void)
{
    return (struct supervisor_view){.state = JOB_RUNNING,
                                    .attempt = 1,
                                    .condition = ATTEMPT_STARTED,
                                    .attached = true,
                                    .max_restarts = 3,
                                    .reset_after_steps = 100,
                                    .first_backoff_ms = 1000,
                                    .max_backoff_ms = 5000};
}

static struct supervisor_decision decide(const struct supervisor_view *v, struct supervisor_event e)
{
    struct supervisor_decision d;
    supervisor_decide(v, &e, 1000000, &d);
    return d;
}

static const struct supervisor_event died = {.kind = SUPERVISE_ENDED,
                                             .retryable = true,
                                             .counted = true,
                                             .message = "rank 1 was killed by signal 9"};

static void a_finished_gang_succeeds(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    struct supervisor_decision d =
        decide(&v, (struct supervisor_event){.kind = SUPERVISE_ENDED, .finished = true});
    assert_true(d.moves);
    assert_int_equal(d.to, JOB_SUCCEEDED);
}

/* Scenario 26: one budget, exponential backoff, the cause recorded. */
static void restarts_back_off_exponentially_until_the_budget_is_spent(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    static const int64_t backoffs[] = {1000, 2000, 4000};
    for (int i = 0; i < 3; i++) {
        struct supervisor_decision d = decide(&v, died);
        assert_int_equal(d.to, JOB_QUEUED);
        assert_string_equal(d.cause, "restart");
        char words[100];
        snprintf(words, sizeof words, "rank 1 was killed by signal 9 (restart %d of 3 in %d s)",
                 i + 1, 1 << i);
        assert_string_equal(d.message, words);
        assert_int_equal(d.backoff_ms, backoffs[i]);
        assert_int_equal(d.restarts, i + 1);
        v.restarts = d.restarts;
        v.mark_step = d.mark_step;
    }
    struct supervisor_decision d = decide(&v, died);
    assert_int_equal(d.to, JOB_FAILED);
    assert_string_equal(d.cause, "restarts-spent");
    assert_non_null(strstr(d.message, "rank 1 was killed by signal 9"));
}

static void backoff_is_capped_and_zero_stays_zero(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.max_restarts = 1000000;
    v.restarts = 999;
    assert_int_equal(decide(&v, died).backoff_ms, 5000);
    v.first_backoff_ms = 0;
    assert_int_equal(decide(&v, died).backoff_ms, 0);
}

/* Progress is counted from the farthest step of the last failure: going over the same steps again
 * and again is none. */
static void only_progress_beyond_the_last_failure_renews_the_budget(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.step = 150;
    struct supervisor_decision d = decide(&v, died);
    assert_int_equal(d.restarts, 1);
    assert_int_equal(d.mark_step, 150);
    v.restarts = 3;
    v.mark_step = 150;
    v.step = 249;
    assert_int_equal(decide(&v, died).to, JOB_FAILED);
    v.step = 250;
    d = decide(&v, died);
    assert_int_equal(d.to, JOB_QUEUED);
    assert_int_equal(d.restarts, 1);
    v.restarts = 1;
    v.step = 120; /* rolled back */
    assert_int_equal(decide(&v, died).mark_step, 150);
}

/* Scenario 25: whatever happens to the gang on the way, the user's wish is why it ends. */
static void a_cancelled_job_ends_in_the_words_of_who_cancelled_it(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.state = JOB_STOPPING;
    v.target = JOB_CANCELLED;
    v.message = "cancelled by ann";
    struct supervisor_event lost = {
        .kind = SUPERVISE_LOST, .retryable = true, .counted = true, .message = "it is gone"};
    assert_string_equal(decide(&v, lost).message, "cancelled by ann");
    assert_string_equal(decide(&v, died).message, "cancelled by ann");
    assert_int_equal(decide(&v, lost).to, JOB_CANCELLED);
}

/* Nothing to wait for: it has started no ranks. */
static void a_node_that_has_not_attached_is_killed_at_once_by_a_stop(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.state = JOB_STOPPING;
    v.attached = false;
    v.since_ms = 1000000;
    for (int i = 0; i < 2; i++) {
        v.target = i ? JOB_CANCELLED : JOB_PAUSED;
        v.condition = ATTEMPT_LAUNCHED;
        assert_true(decide(&v, (struct supervisor_event){.kind = SUPERVISE_TICK}).kill);
        v.condition = ATTEMPT_STARTED;
        assert_false(decide(&v, (struct supervisor_event){.kind = SUPERVISE_TICK}).kill);
    }
}

static void what_would_fail_again_fails_at_once(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    struct supervisor_event e = died;
    e.retryable = false;
    struct supervisor_decision d = decide(&v, e);
    assert_int_equal(d.to, JOB_FAILED);
    assert_string_equal(d.message, "rank 1 was killed by signal 9");
}

/* An attempt that was never launched costs nothing. */
static void a_loss_that_is_not_the_jobs_fault_costs_no_restart(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.state = JOB_STARTING;
    v.restarts = 3;
    struct supervisor_decision d = decide(
        &v, (struct supervisor_event){.kind = SUPERVISE_LOST, .retryable = true, .message = "x"});
    assert_int_equal(d.to, JOB_QUEUED);
    assert_int_equal(d.restarts, 3);
    assert_int_equal(d.backoff_ms, 0);
}

/* Scenario 4: nothing follows from a broken link but waiting. */
static void a_gang_that_is_not_attached_is_left_alone(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.attached = false;
    struct supervisor_event tick = {.kind = SUPERVISE_TICK};
    struct supervisor_decision d;
    supervisor_decide(&v, &tick, (int64_t)1 << 40, &d);
    assert_false(d.moves || d.kill || d.send != SEND_NOTHING);
    struct supervisor_event again = {.kind = SUPERVISE_ATTACHED, .fresh = false};
    d = decide(&v, again);
    assert_false(d.moves || d.kill || d.send != SEND_NOTHING);
}

/* The Start was lost with the controller: said again. */
static void a_fresh_node_of_a_running_job_gets_its_start_again(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    struct supervisor_decision d =
        decide(&v, (struct supervisor_event){.kind = SUPERVISE_ATTACHED, .fresh = true});
    assert_false(d.moves);
    assert_int_equal(d.send, SEND_START);
}

/* Scenario 25. */
static void cancel_asks_first_and_kills_after_the_deadline(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    struct supervisor_decision d =
        decide(&v, (struct supervisor_event){.kind = SUPERVISE_CANCEL, .user = "ann"});
    assert_int_equal(d.to, JOB_STOPPING);
    assert_int_equal(d.target, JOB_CANCELLED);
    assert_int_equal(d.send, SEND_CANCEL);
    assert_string_equal(d.message, "cancelled by ann");
    v.state = JOB_STOPPING;
    v.target = JOB_CANCELLED;
    struct supervisor_event tick = {.kind = SUPERVISE_TICK};
    supervisor_decide(&v, &tick, SUPERVISOR_GRACE_MS + SUPERVISOR_STOP_MS, &d);
    assert_false(d.kill);
    supervisor_decide(&v, &tick, SUPERVISOR_GRACE_MS + SUPERVISOR_STOP_MS + 1, &d);
    assert_true(d.kill);
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_LOST, .counted = true});
    assert_int_equal(d.to, JOB_CANCELLED);
}

/* Scenario 2: a stop that was asked for stays asked for, whatever comes in between. */
static void a_stop_stays_asked_for(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.state = JOB_STOPPING;
    v.target = JOB_CANCELLED;
    assert_int_equal(decide(&v, died).to, JOB_CANCELLED);
    struct supervisor_event again = {.kind = SUPERVISE_ATTACHED, .fresh = false};
    assert_int_equal(decide(&v, again).send, SEND_CANCEL);
    v.target = JOB_PAUSED;
    assert_int_equal(decide(&v, again).send, SEND_STOP);
    struct supervisor_decision d = decide(&v, died);
    assert_int_equal(d.to, JOB_PAUSED);
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_ENDED, .paused = true});
    assert_int_equal(d.to, JOB_PAUSED);
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_ENDED, .finished = true});
    assert_int_equal(d.to, JOB_SUCCEEDED);
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_CANCEL, .user = "ann"});
    assert_int_equal(d.target, JOB_CANCELLED);
}

static void pause_and_resume_of_what_has_ended_are_refused_in_words(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    v.state = JOB_SUCCEEDED;
    assert_non_null(decide(&v, (struct supervisor_event){.kind = SUPERVISE_PAUSE}).refusal);
    assert_non_null(decide(&v, (struct supervisor_event){.kind = SUPERVISE_RESUME}).refusal);
    struct supervisor_decision d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_CANCEL});
    assert_true(!d.refusal && !d.moves);
    v.state = JOB_FAILED;
    v.restarts = 3;
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_RESUME, .user = "ann"});
    assert_int_equal(d.to, JOB_QUEUED);
    assert_int_equal(d.restarts, 0);
}

/* A node that starts and never speaks, one that says that all is over and doesn't leave. */
static void a_node_that_hangs_is_killed(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    struct supervisor_event tick = {.kind = SUPERVISE_TICK};
    struct supervisor_decision d;
    v.state = JOB_STARTING;
    v.condition = ATTEMPT_LAUNCHED;
    v.attached = false;
    supervisor_decide(&v, &tick, SUPERVISOR_ATTACH_MS, &d);
    assert_false(d.kill);
    supervisor_decide(&v, &tick, SUPERVISOR_ATTACH_MS + 1, &d);
    assert_true(d.kill);
    v.state = JOB_SUCCEEDED;
    v.condition = ATTEMPT_ENDED;
    supervisor_decide(&v, &tick, SUPERVISOR_LEAVE_MS, &d);
    assert_false(d.kill);
    supervisor_decide(&v, &tick, SUPERVISOR_LEAVE_MS + 1, &d);
    assert_true(d.kill);
}

/* Every event in every state: what is decided is in the table of moves, and an end is left only by
 * a user's wish. */
static void every_decision_is_an_allowed_move(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200000; seed++) {
        uint64_t k = 0;
#define PICK(n) ((int32_t)(rng_u64(seed, 7, k++) % (uint64_t)(n)))
        struct supervisor_view v = running();
        v.state = (JobState)(1 + PICK(9));
        v.target = v.state == JOB_STOPPING ? (PICK(2) ? JOB_CANCELLED : JOB_PAUSED) : 0;
        v.attempt = PICK(3);
        v.condition = v.attempt ? (enum attempt_condition)(1 + PICK(5)) : 0;
        v.attached = PICK(2);
        v.restarts = PICK(5);
        v.step = PICK(300);
        v.mark_step = PICK(300);
        struct supervisor_event e = {.kind = (enum supervisor_kind)PICK(9), .user = "ann"};
        e.fresh = PICK(2);
        e.finished = PICK(2);
        e.paused = PICK(2);
        e.cancelled = PICK(2);
        e.retryable = PICK(2);
        e.counted = PICK(2);
        struct supervisor_decision d;
        supervisor_decide(&v, &e, PICK(1000000), &d);
        if (d.moves) {
            assert_true(job_may_move(v.state, d.to));
            assert_true(!job_state_is_end(v.state) || e.kind == SUPERVISE_RESUME);
            assert_true((d.to == JOB_STOPPING) == (d.target != 0));
        }
        assert_true(d.restarts >= 0 && d.restarts <= 5 && d.backoff_ms >= 0);
    }
}

/* [4], [8] A gang trains on unheard while its lease holds; then it is known to have stopped, or is
 * made to, before its devices are another's. */
static void a_gang_is_given_up_when_its_lease_is_over(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    const struct supervisor_event tick = {.kind = SUPERVISE_TICK};
    v.lease_ms = 1000;
    v.attached = false;
    v.since_ms = 1000000 - 1250;
    assert_false(decide(&v, tick).kill);
    v.since_ms--;
    assert_true(decide(&v, tick).kill);
    assert_non_null(decide(&v, tick).why_kill);
    assert_false(decide(&v, tick).moves); /* not before it is dead */
    v.attached = true;
    assert_false(decide(&v, tick).kill);
    v.attached = false;
    v.lease_ms = 0;
    assert_false(decide(&v, tick).kill);
    v.lease_ms = 1000;
    v.state = JOB_STOPPING;
    v.target = JOB_PAUSED;
    assert_true(decide(&v, tick).kill);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_finished_gang_succeeds),
        cmocka_unit_test(restarts_back_off_exponentially_until_the_budget_is_spent),
        cmocka_unit_test(backoff_is_capped_and_zero_stays_zero),
        cmocka_unit_test(only_progress_beyond_the_last_failure_renews_the_budget),
        cmocka_unit_test(a_cancelled_job_ends_in_the_words_of_who_cancelled_it),
        cmocka_unit_test(a_node_that_has_not_attached_is_killed_at_once_by_a_stop),
        cmocka_unit_test(what_would_fail_again_fails_at_once),
        cmocka_unit_test(a_loss_that_is_not_the_jobs_fault_costs_no_restart),
        cmocka_unit_test(a_gang_that_is_not_attached_is_left_alone),
        cmocka_unit_test(a_fresh_node_of_a_running_job_gets_its_start_again),
        cmocka_unit_test(cancel_asks_first_and_kills_after_the_deadline),
        cmocka_unit_test(a_stop_stays_asked_for),
        cmocka_unit_test(pause_and_resume_of_what_has_ended_are_refused_in_words),
        cmocka_unit_test(a_node_that_hangs_is_killed),
        cmocka_unit_test(a_gang_is_given_up_when_its_lease_is_over),
        cmocka_unit_test(every_decision_is_an_allowed_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
