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
        static const JobState targets[] = {JOB_CANCELLED, JOB_PAUSED, JOB_QUEUED, JOB_HELD,
                                           JOB_FAILED};
        v.target = v.state == JOB_STOPPING ? (int32_t)targets[PICK(5)] : 0;
        v.cause = "preempted";
        v.attempt = PICK(3);
        v.condition = v.attempt ? (enum attempt_condition)(1 + PICK(5)) : 0;
        v.attached = PICK(2);
        v.restarts = PICK(5);
        v.step = PICK(300);
        v.mark_step = PICK(300);
        struct supervisor_event e = {.kind = (enum supervisor_kind)PICK(SUPERVISE_LIMIT + 1),
                                     .user = "ann"};
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
            /* Nothing takes a cancel back. */
            assert_true(v.target != JOB_CANCELLED || d.to == JOB_CANCELLED);
        }
        assert_true(d.evictions == v.evictions ||
                    (d.evictions == v.evictions + 1 && d.to == JOB_QUEUED));
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

static struct supervisor_view stopping(JobState target, const char *cause, const char *message)
{
    struct supervisor_view v = running();
    v.state = JOB_STOPPING;
    v.target = (int32_t)target;
    v.cause = cause;
    v.message = message;
    v.moved_ms = v.since_ms = 1000000;
    v.grace_ms = 5000;
    v.step = 40;
    v.restarts = 2;
    v.evictions = 1;
    return v;
}

/* [17] A victim saves at a step boundary and waits again, by no fault of its own. */
static void a_preempted_job_is_asked_to_stop_and_then_waits_again(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    const char *words = "gives its 4 devices to job 12 (priority high)";
    struct supervisor_decision d =
        decide(&v, (struct supervisor_event){.kind = SUPERVISE_PREEMPT, .message = words});
    assert_int_equal(d.to, JOB_STOPPING);
    assert_int_equal(d.target, JOB_QUEUED);
    assert_string_equal(d.cause, "preempted");
    assert_int_equal(d.send, SEND_STOP);
    v = stopping(JOB_QUEUED, d.cause, d.message);
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_ENDED, .paused = true});
    assert_int_equal(d.to, JOB_QUEUED);
    assert_string_equal(d.cause, "preempted");
    assert_string_equal(d.message, "gave its 4 devices to job 12 (priority high) after step 40");
    assert_int_equal(d.evictions, 2);
    assert_int_equal(d.restarts, 2);
    assert_int_equal(d.backoff_ms, 0);
}

/* Its death, even one that would fail again, is no restart: the next attempt will show. */
static void a_victim_that_dies_while_it_stops_waits_again_all_the_same(void **state)
{
    (void)state;
    struct supervisor_view v = stopping(JOB_QUEUED, "preempted", "gives its 4 devices to job 12");
    struct supervisor_event e = died;
    for (int i = 0; i < 4; i++) {
        e.retryable = i % 2;
        e.kind = i < 2 ? SUPERVISE_ENDED : SUPERVISE_LOST;
        struct supervisor_decision d = decide(&v, e);
        assert_int_equal(d.to, JOB_QUEUED);
        assert_int_equal(d.restarts, 2);
        assert_int_equal(d.evictions, 2);
        assert_string_equal(d.message, "gave its 4 devices to job 12 after step 40; it died while "
                                       "it was stopping (rank 1 was killed by signal 9)");
    }
    v = stopping(JOB_QUEUED, "drained", "gives its 4 devices back: alpha:2 is drained");
    struct supervisor_decision d = decide(&v, died);
    assert_int_equal(d.to, JOB_QUEUED);
    assert_string_equal(d.cause, "drained");
    assert_string_equal(d.message,
                        "gave its 4 devices back after step 40: alpha:2 is drained; it died "
                        "while it was stopping (rank 1 was killed by signal 9)");
    assert_int_equal(d.evictions, 1);
}

static void one_that_finishes_meanwhile_has_succeeded(void **state)
{
    (void)state;
    const struct supervisor_event done = {.kind = SUPERVISE_ENDED, .finished = true};
    static const JobState targets[] = {JOB_QUEUED, JOB_HELD, JOB_FAILED, JOB_PAUSED};
    for (int i = 0; i < 4; i++) {
        struct supervisor_view v = stopping(targets[i], "preempted", "");
        assert_int_equal(decide(&v, done).to, JOB_SUCCEEDED);
        assert_int_equal(decide(&v, done).evictions, 1);
    }
}

/* Who ignores it is killed at the grace's end, attached or not; the clock runs from the ask, and
 * goes on when a user takes the stop over. */
static void who_does_not_stop_for_others_is_killed_after_the_grace(void **state)
{
    (void)state;
    const struct supervisor_event tick = {.kind = SUPERVISE_TICK};
    static const JobState targets[] = {JOB_QUEUED, JOB_FAILED, JOB_HELD, JOB_PAUSED};
    for (int i = 0; i < 8; i++) {
        struct supervisor_view v = stopping(targets[i % 4], "preempted", "");
        v.yields = true;
        v.attached = i < 4;
        struct supervisor_decision d;
        supervisor_decide(&v, &tick, 1005000, &d);
        assert_false(d.kill);
        supervisor_decide(&v, &tick, 1005001, &d);
        assert_true(d.kill);
        assert_non_null(d.why_kill);
        assert_false(d.moves); /* not before it is dead */
        v.yields = false;
        v.cause = "paused"; /* nobody else's wish */
        supervisor_decide(&v, &tick, 1005001, &d);
        assert_int_equal(d.kill, targets[i % 4] != JOB_PAUSED);
    }
}

/* A pause may take as long as a step does, which is for its user to say; it doesn't keep devices
 * from a drain, or beyond the time limit that others reckon with: whichever came first. */
static void a_pause_gets_no_time_beyond_a_drain_or_a_limit(void **state)
{
    (void)state;
    const struct supervisor_event tick = {.kind = SUPERVISE_TICK};
    const struct supervisor_event pause = {.kind = SUPERVISE_PAUSE, .user = "ann"};
    static const enum supervisor_kind others[] = {SUPERVISE_DRAIN, SUPERVISE_LIMIT};
    for (int i = 0; i < 4; i++) {
        const struct supervisor_event other = {.kind = others[i % 2], .message = "others wait"};
        struct supervisor_view v = running();
        char cause[32]; /* of the row: it doesn't outlive the move */
        struct supervisor_decision d = decide(&v, i < 2 ? pause : other);
        snprintf(cause, sizeof cause, "%s", d.cause);
        v = stopping((JobState)d.target, cause, d.message);
        d = decide(&v, i < 2 ? other : pause);
        cause[0] = 0;
        assert_true(d.moves && d.to == JOB_STOPPING && d.target == JOB_PAUSED);
        assert_int_equal(d.keeps_grace, i >= 2);
        v = stopping((JobState)d.target, d.cause, d.message);
        assert_false(decide(&v, other).moves); /* once */
        supervisor_decide(&v, &tick, 1005001, &d);
        assert_true(d.kill);
        assert_int_equal(decide(&v, died).to, JOB_PAUSED);
    }
    struct supervisor_view v = running();
    struct supervisor_decision d = decide(&v, pause);
    v = stopping((JobState)d.target, d.cause, d.message);
    supervisor_decide(&v, &tick, 1005001, &d);
    assert_false(d.kill);
}

/* [2] Said again to a tandem-node that attaches again; one without ranks only has to leave. */
static void a_stop_for_others_stays_asked_for(void **state)
{
    (void)state;
    struct supervisor_view v = stopping(JOB_QUEUED, "preempted", "");
    assert_int_equal(
        decide(&v, (struct supervisor_event){.kind = SUPERVISE_ATTACHED, .fresh = false}).send,
        SEND_STOP);
    assert_int_equal(
        decide(&v, (struct supervisor_event){.kind = SUPERVISE_ATTACHED, .fresh = true}).send,
        SEND_CANCEL);
    assert_false(decide(&v, (struct supervisor_event){.kind = SUPERVISE_LIMIT}).moves);
}

/* What its user wants wins over what others want of it. */
static void cancel_pause_and_hold_win_over_a_stop_for_others(void **state)
{
    (void)state;
    const struct supervisor_event ended = {.kind = SUPERVISE_ENDED, .paused = true};
    static const struct {
        enum supervisor_kind kind;
        JobState target;
    } wishes[] = {{SUPERVISE_CANCEL, JOB_CANCELLED},
                  {SUPERVISE_PAUSE, JOB_PAUSED},
                  {SUPERVISE_HOLD, JOB_HELD}};
    for (int i = 0; i < 3; i++) {
        struct supervisor_view v = stopping(JOB_QUEUED, "preempted", "gives all");
        struct supervisor_decision d =
            decide(&v, (struct supervisor_event){.kind = wishes[i].kind, .user = "ann"});
        assert_int_equal(d.to, JOB_STOPPING);
        assert_int_equal(d.target, wishes[i].target);
        v = stopping(wishes[i].target, d.cause, d.message);
        assert_int_equal(decide(&v, ended).to, wishes[i].target);
        assert_int_equal(decide(&v, ended).evictions, 1);
    }
    struct supervisor_view v = stopping(JOB_FAILED, "time-limit", "");
    assert_non_null(decide(&v, (struct supervisor_event){.kind = SUPERVISE_HOLD}).refusal);
    v = stopping(JOB_QUEUED, "preempted", "");
    const struct supervisor_event resume = {.kind = SUPERVISE_RESUME, .user = "ann"};
    assert_true(!decide(&v, resume).refusal && !decide(&v, resume).moves);
    v = stopping(JOB_HELD, "held", "");
    assert_non_null(decide(&v, (struct supervisor_event){.kind = SUPERVISE_RELEASE}).refusal);
    assert_null(decide(&v, (struct supervisor_event){.kind = SUPERVISE_HOLD}).refusal);
}

/* At its time limit a job saves and has failed, and a resume goes on from there. */
static void the_time_limit_fails_a_job_after_a_checkpoint(void **state)
{
    (void)state;
    struct supervisor_view v = running();
    struct supervisor_decision d = decide(
        &v, (struct supervisor_event){.kind = SUPERVISE_LIMIT, .message = "its 60 s are over"});
    assert_int_equal(d.to, JOB_STOPPING);
    assert_int_equal(d.target, JOB_FAILED);
    assert_int_equal(d.send, SEND_STOP);
    v = stopping(JOB_FAILED, d.cause, d.message);
    d = decide(&v, (struct supervisor_event){.kind = SUPERVISE_ENDED, .paused = true});
    assert_int_equal(d.to, JOB_FAILED);
    assert_string_equal(d.cause, "time-limit");
    assert_int_equal(d.evictions, 1);
    assert_int_equal(decide(&v, died).to, JOB_FAILED);
    assert_string_equal(decide(&v, died).cause, "time-limit");
}

/* One that doesn't run has nothing to give. */
static void a_stop_for_others_of_what_does_not_run_is_nothing(void **state)
{
    (void)state;
    for (int s = JOB_QUEUED; s <= JOB_CANCELLED; s++) {
        struct supervisor_view v = running();
        v.state = (JobState)s;
        v.target = s == JOB_STOPPING ? JOB_CANCELLED : 0;
        for (int k = SUPERVISE_PREEMPT; k <= SUPERVISE_LIMIT; k++) {
            struct supervisor_decision d =
                decide(&v, (struct supervisor_event){.kind = (enum supervisor_kind)k});
            assert_true(d.moves == (s == JOB_STARTING || s == JOB_RUNNING) && !d.refusal);
        }
    }
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
        cmocka_unit_test(a_preempted_job_is_asked_to_stop_and_then_waits_again),
        cmocka_unit_test(a_victim_that_dies_while_it_stops_waits_again_all_the_same),
        cmocka_unit_test(one_that_finishes_meanwhile_has_succeeded),
        cmocka_unit_test(who_does_not_stop_for_others_is_killed_after_the_grace),
        cmocka_unit_test(a_stop_for_others_stays_asked_for),
        cmocka_unit_test(cancel_pause_and_hold_win_over_a_stop_for_others),
        cmocka_unit_test(a_pause_gets_no_time_beyond_a_drain_or_a_limit),
        cmocka_unit_test(the_time_limit_fails_a_job_after_a_checkpoint),
        cmocka_unit_test(a_stop_for_others_of_what_does_not_run_is_nothing),
        cmocka_unit_test(every_decision_is_an_allowed_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
