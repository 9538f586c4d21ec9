/* Scenarios of the controller under the simulator: each test runs a profile of faults over many
 * seeds, and every seed must keep all invariants of sim_check.h.
 *
 * SIM_SEED=n runs that seed alone, with every event on stderr; SIM_PROFILE=name picks the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/effort.h"
#include "tests/sim/sim.h"

static void run_seeds(const char *name, int num_seeds)
{
    const struct sim_profile *p = sim_profile(name);
    const char *only = getenv("SIM_PROFILE"), *seed = getenv("SIM_SEED");
    assert_non_null(p);
    if (only && strcmp(only, name) != 0) {
        skip();
    }
    if (seed) {
        char why[512];
        bool fine = sim_run(strtoull(seed, NULL, 10), p, true, why, sizeof why);
        if (!fine) {
            fail_msg("%s", why);
        }
        return;
    }
    uint64_t failed;
    if (!sim_run_seeds(p, 1, (uint64_t)num_seeds, &failed)) {
        fail_msg("seed %llu: SIM_PROFILE=%s SIM_SEED=%llu shows it", (unsigned long long)failed,
                 name, (unsigned long long)failed);
    }
}

static void run(const char *name)
{
    run_seeds(name, effort(10000, 120, 8));
}

/* The profiles of the queue: 560 seeds together, 10,000 in full. */
static void run_queue(const char *name)
{
    run_seeds(name, effort(1500, 80, 8));
}

/* [1]: acknowledged means durable, and one key is one job. */
static void an_acknowledged_job_survives_any_kill(void **state)
{
    (void)state;
    run("submit");
}

/* [2]: killed in every state, also while it stops. */
static void every_state_survives_a_kill_and_a_stop_stays_asked_for(void **state)
{
    (void)state;
    run("states");
}

/* [3]: a spec that is damaged in the database. */
static void an_unreadable_row_costs_its_own_job_only(void **state)
{
    (void)state;
    run("rot");
}

/* [4]: cannot reach isn't failed; reports are delivered later, each once. */
static void a_broken_link_neither_fails_a_job_nor_loses_a_report(void **state)
{
    (void)state;
    run("links");
}

/* [5] */
static void a_result_reached_while_the_controller_is_down_is_not_run_again(void **state)
{
    (void)state;
    run("down");
}

/* [6] */
static void submissions_in_flight_are_there_exactly_once_after_a_restart(void **state)
{
    (void)state;
    run("many");
}

/* [7] */
static void late_words_of_an_older_attempt_change_nothing(void **state)
{
    (void)state;
    run("late");
}

/* [8]: leases run out, nodes come back after they were given up. */
static void a_gang_that_was_given_up_is_gone_before_its_devices_are_used(void **state)
{
    (void)state;
    run("leases");
}

/* [9] */
static void nothing_destructive_follows_from_an_error_of_the_launcher(void **state)
{
    (void)state;
    run("launcher");
}

/* [25]: also where a kill has no effect for a minute. */
static void a_cancel_ends_the_job_and_frees_its_devices(void **state)
{
    (void)state;
    run("cancels");
}

/* [26]: one budget, a backoff, counted anew after progress. */
static void restarts_wait_and_stay_within_their_budget(void **state)
{
    (void)state;
    run("budget");
}

/* [31] */
static void a_curve_is_whole_after_rollbacks(void **state)
{
    (void)state;
    run("rollback");
}

/* [33]: full, slow, or with errors. */
static void a_bad_disk_loses_nothing_that_was_promised(void **state)
{
    (void)state;
    run("disk");
}

/* [34] */
static void clocks_that_jump_and_drift_change_nothing(void **state)
{
    (void)state;
    run("clocks");
}

static void all_faults_together_are_survived(void **state)
{
    (void)state;
    run("all");
}

/* [10] [15] [16] [22]: on any cluster, also one whose file is edited between two starts. */
static void devices_have_one_holder_on_any_cluster_and_after_a_start(void **state)
{
    (void)state;
    run_queue("topology");
}

/* [10] [13]: device-time adds up; a quota that is lowered stops nobody and lets nobody start. */
static void quotas_are_kept_and_device_time_adds_up(void **state)
{
    (void)state;
    run_queue("tenants");
}

/* [11] [17] [24] */
static void a_victim_yields_once_and_what_it_frees_is_kept(void **state)
{
    (void)state;
    run_queue("preempt");
}

/* [18] [21] [23] */
static void a_drained_device_gets_nothing_new_and_its_gang_moves_as_a_whole(void **state)
{
    (void)state;
    run_queue("drains");
}

/* [24] */
static void nothing_runs_beyond_its_time_limit_and_a_kill(void **state)
{
    (void)state;
    run_queue("limits");
}

/* [24] */
static void a_job_starts_when_all_that_it_waits_for_have_succeeded(void **state)
{
    (void)state;
    run_queue("after");
}

static void all_of_the_queue_survives_all_faults(void **state)
{
    (void)state;
    run_queue("queue");
}

/* A run that doesn't follow from its seed alone could not be looked at again. */
static void a_seed_gives_the_same_run_again(void **state)
{
    (void)state;
    char why[512];
    for (uint64_t seed = 1; seed <= 10; seed++) {
        const struct sim_profile *p = sim_profile(seed % 2 ? "all" : "queue");
        struct sim_seen one = {0}, two = {0};
        sim_run_seen(seed, p, &one, why, sizeof why);
        sim_run_seen(seed, p, &two, why, sizeof why);
        assert_memory_equal(&one, &two, sizeof one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acknowledged_job_survives_any_kill),
        cmocka_unit_test(every_state_survives_a_kill_and_a_stop_stays_asked_for),
        cmocka_unit_test(an_unreadable_row_costs_its_own_job_only),
        cmocka_unit_test(a_broken_link_neither_fails_a_job_nor_loses_a_report),
        cmocka_unit_test(a_result_reached_while_the_controller_is_down_is_not_run_again),
        cmocka_unit_test(submissions_in_flight_are_there_exactly_once_after_a_restart),
        cmocka_unit_test(late_words_of_an_older_attempt_change_nothing),
        cmocka_unit_test(a_gang_that_was_given_up_is_gone_before_its_devices_are_used),
        cmocka_unit_test(nothing_destructive_follows_from_an_error_of_the_launcher),
        cmocka_unit_test(a_cancel_ends_the_job_and_frees_its_devices),
        cmocka_unit_test(restarts_wait_and_stay_within_their_budget),
        cmocka_unit_test(a_curve_is_whole_after_rollbacks),
        cmocka_unit_test(a_bad_disk_loses_nothing_that_was_promised),
        cmocka_unit_test(clocks_that_jump_and_drift_change_nothing),
        cmocka_unit_test(all_faults_together_are_survived),
        cmocka_unit_test(devices_have_one_holder_on_any_cluster_and_after_a_start),
        cmocka_unit_test(quotas_are_kept_and_device_time_adds_up),
        cmocka_unit_test(a_victim_yields_once_and_what_it_frees_is_kept),
        cmocka_unit_test(a_drained_device_gets_nothing_new_and_its_gang_moves_as_a_whole),
        cmocka_unit_test(nothing_runs_beyond_its_time_limit_and_a_kill),
        cmocka_unit_test(a_job_starts_when_all_that_it_waits_for_have_succeeded),
        cmocka_unit_test(all_of_the_queue_survives_all_faults),
        cmocka_unit_test(a_seed_gives_the_same_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
