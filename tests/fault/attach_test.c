/* tandem-node as a process, against a controller that the test plays: what goes up is numbered and
 * arrives exactly once whatever the stream does; what comes down is obeyed; nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/node/proctree.h"
#include "tests/deadline.h"
#include "tests/fault/attach_bench.h"

static void an_attempt_runs_and_reports_to_its_end(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "talk 100", "done");
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 0);
    /* 100 steps, two exits, the end. */
    assert_int_equal(t.num_ups, 103);
    assert_int_equal(t.num_again, 0);
    assert_true(the_end(&t)->finished);
    int64_t step = 0;
    for (int i = 0; i < t.num_ups; i++) {
        assert_int_equal(t.ups[i]->job_id, 7);
        if (t.ups[i]->body_case == WORKER_UP__BODY_METRICS) {
            assert_int_equal(t.ups[i]->metrics->step, ++step);
            assert_int_equal(t.ups[i]->metrics->attempt, 2);
        }
    }
    assert_int_equal(step, 100);
    finish(&t);
}

/* Streams break; what was reported arrives once and in order all the same. */
static void reports_survive_broken_streams(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "talk 1000", "done");
    t.break_after = 150;
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 0);
    assert_int_equal(t.num_ups, 1003);
    assert_true(t.num_hellos >= 6);
    assert_false(t.hello_fresh);
    assert_true(the_end(&t)->finished);
    finish(&t);
}

/* The ranks train on while the controller is away, and the new one hears all of it. */
static void a_restarted_controller_hears_what_it_missed(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "talk 300", "then done");
    t.mute = true;
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_ups(&t, 301, 1);
    controller_leave(&t);
    for (int i = 0; i < t.num_ups; i++) {
        worker_up__free_unpacked(t.ups[i], NULL);
    }
    t.num_ups = 0; /* it forgot what it hadn't acknowledged */
    t.mute = false;
    controller_serve(&t);
    wait_for_ups(&t, 301, 2);
    assert_false(t.hello_fresh);
    assert_int_equal(t.hello_acked, 0);
    StopAtStep stop = STOP_AT_STEP__INIT;
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    send_down(&t, &down);
    assert_int_equal(node_wait(&t), 0);
    assert_int_equal(t.num_ups, 303);
    finish(&t);
}

/* A controller that isn't there yet is waited for. */
static void a_node_waits_for_its_controller(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 1, "done", "");
    node_start(&t, "the-token");
    clock_sleep_ms(200); /* long enough for some attempts that fail */
    controller_serve(&t);
    assert_int_equal(node_wait(&t), 0);
    assert_true(the_end(&t)->finished);
    finish(&t);
}

static void a_cancel_ends_the_gang_and_is_reported(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "stubborn", "brood");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    CancelAttempt cancel = CANCEL_ATTEMPT__INIT;
    cancel.has_grace_ms = 1;
    cancel.grace_ms = 100;
    cancel.reason = (char[]){"by ada"};
    WorkerDown down = WORKER_DOWN__INIT;
    down.body_case = WORKER_DOWN__BODY_CANCEL;
    down.cancel = &cancel;
    send_down(&t, &down);
    assert_int_equal(node_wait(&t), 0);
    const AttemptEnd *end = the_end(&t);
    assert_true(end->cancelled && !end->finished);
    assert_int_equal(end->first_failed_rank, -1);
    assert_string_equal(end->message, "cancelled: by ada");
    finish(&t);
}

static void a_refused_attempt_is_ended(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "stubborn", "hang");
    t.refuse_after = 1;
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    pthread_mutex_lock(&t.lock);
    call_fail(t.call, ERR_UNAVAILABLE, "broken on purpose");
    pthread_mutex_unlock(&t.lock);
    assert_int_equal(node_wait(&t), 1);
    wait_for_log(&t, "node.log", "attempt 2 isn't the current one");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "the controller refuses this attempt");
    finish(&t);
}

static void a_wrong_token_starts_nothing(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 1, "hang", "");
    controller_serve(&t);
    node_start(&t, "another");
    assert_int_equal(node_wait(&t), 1);
    assert_int_equal(t.num_hellos, 0);
    finish(&t);
}

/* Without the controller's word the devices may be another's: the ranks must not go on. */
static void a_lease_that_runs_out_ends_the_gang(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "hang", "stubborn");
    t.lease_ms = 500;
    controller_serve(&t);
    node_start(&t, "the-token");
    assert_int_equal(node_wait(&t), 1);
    wait_for_log(&t, "node.log", "the lease is over");
    finish(&t);
}

static void a_terminated_node_takes_its_gang_along(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "hang", "brood");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    assert_int_equal(kill(t.node, SIGTERM), 0);
    assert_int_equal(node_wait(&t), 0);
    assert_true(the_end(&t)->cancelled);
    assert_non_null(strstr(the_end(&t)->message, "SIGTERM"));
    finish(&t);
}

/* Nobody hears its report: it leaves all the same, soon. */
static void a_terminated_node_does_not_wait_for_a_lost_controller(void **state)
{
    (void)state;
    struct controller t;
    begin(&t, 2, "hang", "stubborn");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    controller_leave(&t);
    assert_int_equal(kill(t.node, SIGTERM), 0);
    assert_int_equal(node_wait(&t), 1);
    controller_serve(&t);
    finish(&t);
}

/* The kernel does it: nobody is there to tell the ranks. */
static void ranks_die_with_a_killed_node(void **state)
{
    (void)state;
    struct controller t;
    int status;
    begin(&t, 2, "hang", "stubborn");
    controller_serve(&t);
    node_start(&t, "the-token");
    wait_for_log(&t, "logs/attempt-2/rank-0.log", "waiting");
    wait_for_log(&t, "logs/attempt-2/rank-1.log", "waiting");
    assert_int_equal(kill(t.node, SIGKILL), 0);
    /* We adopt its orphans: reaped here, or reaped already by nobody else. */
    for (int i = 0; i < 3; i++) {
        deadline_begin(DEADLINE_S, "the end of tandem-node and its two ranks: %d have ended", i);
        assert_true(wait(&status) > 0);
        deadline_end();
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    finish(&t);
}

int main(void)
{
    if (proctree_adopt_orphans(NULL) != 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attempt_runs_and_reports_to_its_end),
        cmocka_unit_test(reports_survive_broken_streams),
        cmocka_unit_test(a_restarted_controller_hears_what_it_missed),
        cmocka_unit_test(a_node_waits_for_its_controller),
        cmocka_unit_test(a_cancel_ends_the_gang_and_is_reported),
        cmocka_unit_test(a_refused_attempt_is_ended),
        cmocka_unit_test(a_wrong_token_starts_nothing),
        cmocka_unit_test(a_lease_that_runs_out_ends_the_gang),
        cmocka_unit_test(a_terminated_node_takes_its_gang_along),
        cmocka_unit_test(a_terminated_node_does_not_wait_for_a_lost_controller),
        cmocka_unit_test(ranks_die_with_a_killed_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
