/* server/scheduler: who starts, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "server/scheduler.h"

static struct sched_job job(int64_t id, int32_t priority, int32_t devices)
{
    return (struct sched_job){
        .id = id, .priority = priority, .devices = devices, .type = "any", .ready = true};
}

static void make_devices(struct sched_device *d, int32_t num, const char *node)
{
    for (int32_t i = 0; i < num; i++) {
        d[i] = (struct sched_device){.node = node, .type = "cpu"};
    }
}

/* Runs it, forgetting what the last run gave. */
static size_t run(const struct sched_job *jobs, size_t num, const struct sched_device *d,
                  int32_t num_devices, struct sched_start *starts)
{
    for (size_t i = 0; i < num; i++) {
        device_set_free(starts[i].devices);
    }
    memset(starts, 0, num * sizeof *starts);
    return scheduler_run(jobs, num, d, num_devices, starts);
}

static void forget(struct sched_start *starts, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        device_set_free(starts[i].devices);
    }
}

static void higher_priority_starts_first_then_the_older_job(void **state)
{
    (void)state;
    struct sched_device d[2];
    make_devices(d, 2, "a");
    struct sched_job jobs[] = {job(1, 500, 1), job(2, 750, 1), job(3, 750, 1)};
    struct sched_start starts[3] = {{0}};
    assert_int_equal(run(jobs, 3, d, 2, starts), 2);
    assert_int_equal(starts[0].job_idx, 1);
    assert_int_equal(starts[1].job_idx, 2);
    forget(starts, 3);
}

/* Scenario 15: two gangs that each need all. */
static void of_two_gangs_that_need_all_one_starts_and_the_other_has_a_reason(void **state)
{
    (void)state;
    struct sched_device d[4];
    make_devices(d, 4, "a");
    struct sched_job jobs[] = {job(1, 500, 4), job(2, 500, 4)};
    struct sched_start starts[2] = {{0}};
    assert_int_equal(run(jobs, 2, d, 4, starts), 1);
    assert_int_equal(starts[0].job_idx, 0);
    assert_int_equal(device_set_num(starts[0].devices), 4);
    for (int i = 0; i < 4; i++) {
        d[i].job_id = 1;
    }
    assert_int_equal(run(&jobs[1], 1, d, 4, starts), 0);
    char why[256];
    scheduler_why(&jobs[1], 1, d, 4, 0, why, sizeof why);
    assert_string_equal(why, "needs 4 devices; 0 of 4 are free (job 1 holds some)");
    forget(starts, 2);
}

/* Scenario 19, without an estimate of when jobs end: small jobs don't pass a big one that waits. */
static void a_small_job_does_not_overtake_a_big_one_that_waits(void **state)
{
    (void)state;
    struct sched_device d[4];
    make_devices(d, 4, "a");
    d[0].job_id = 9;
    struct sched_job jobs[] = {job(1, 500, 4), job(2, 500, 1)};
    struct sched_start starts[2] = {{0}};
    assert_int_equal(run(jobs, 2, d, 4, starts), 0);
    char why[256];
    scheduler_why(jobs, 2, d, 4, 1, why, sizeof why);
    assert_non_null(strstr(why, "waits behind job 1, which needs 4 devices"));
    jobs[0].ready = false; /* in a backoff: it keeps nobody waiting */
    assert_int_equal(run(jobs, 2, d, 4, starts), 1);
    assert_int_equal(starts[0].job_idx, 1);
    forget(starts, 2);
}

/* Scenario 19: blocked on one type of device, no obstacle for another's. */
static void a_job_that_waits_for_one_type_does_not_block_another_type(void **state)
{
    (void)state;
    struct sched_device d[3];
    make_devices(d, 3, "a");
    d[2].type = "h100";
    struct sched_job jobs[] = {job(1, 500, 3), job(2, 500, 1)};
    jobs[0].type = "cpu";
    jobs[1].type = "h100";
    struct sched_start starts[2] = {{0}};
    assert_int_equal(run(jobs, 2, d, 3, starts), 1);
    assert_int_equal(starts[0].job_idx, 1);
    assert_true(device_set_has(starts[0].devices, 2));
    char why[256];
    scheduler_why(jobs, 2, d, 3, 0, why, sizeof why);
    assert_string_equal(why, "needs 3 cpu devices; the cluster has 2 that are not drained");
    forget(starts, 2);
}

static void a_gang_lies_on_one_node_if_it_fits_and_on_the_nodes_it_names(void **state)
{
    (void)state;
    struct sched_device d[4];
    make_devices(d, 2, "a");
    make_devices(d + 2, 2, "b");
    d[0].job_id = 7;
    struct sched_start starts[1] = {{0}};
    struct sched_job two = job(1, 500, 2);
    assert_int_equal(run(&two, 1, d, 4, starts), 1);
    assert_true(device_set_has(starts[0].devices, 2) && device_set_has(starts[0].devices, 3));
    const char *only_a[] = {"a"};
    two.nodes = only_a;
    two.num_nodes = 1;
    assert_int_equal(run(&two, 1, d, 4, starts), 0);
    forget(starts, 1);
}

static void a_drained_device_is_left_alone(void **state)
{
    (void)state;
    struct sched_device d[2];
    make_devices(d, 2, "a");
    d[0].drained = true;
    struct sched_job one = job(1, 500, 1), two = job(2, 500, 2);
    struct sched_start starts[1] = {{0}};
    assert_int_equal(run(&one, 1, d, 2, starts), 1);
    assert_true(device_set_has(starts[0].devices, 1));
    assert_int_equal(run(&two, 1, d, 2, starts), 0);
    forget(starts, 1);
}

/* Whatever the queue: no device twice, none that is held, each gang whole, no job passed over by a
 * later one that could use its devices. */
static void no_device_is_given_twice_whatever_the_queue(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct sched_device d[24];
        struct sched_job jobs[12];
        struct sched_start starts[12] = {{0}};
        uint64_t k = 0;
#define DRAW(n) ((int32_t)(rng_u64(seed, 1, k++) % (uint64_t)(n)))
        make_devices(d, 24, "a");
        for (int i = 0; i < 24; i++) {
            d[i].job_id = DRAW(3) == 0 ? 99 : 0;
            d[i].drained = DRAW(8) == 0;
        }
        for (int i = 0; i < 12; i++) {
            int32_t priority = DRAW(4) * 250, num = 1 + DRAW(10);
            jobs[i] = job(i + 1, priority, num);
            jobs[i].ready = DRAW(5) != 0;
        }
        size_t n = run(jobs, 12, d, 24, starts);
        bool seen[24] = {false};
        for (size_t s = 0; s < n; s++) {
            assert_int_equal(device_set_num(starts[s].devices), jobs[starts[s].job_idx].devices);
            assert_true(jobs[starts[s].job_idx].ready);
            for (int32_t i = 0; i < starts[s].devices->num; i++) {
                int32_t device = starts[s].devices->device[i];
                assert_true(d[device].job_id == 0 && !d[device].drained && !seen[device]);
                seen[device] = true;
            }
        }
        bool started[12] = {false};
        for (size_t s = 0; s < n; s++) {
            started[starts[s].job_idx] = true;
        }
        for (int a = 0; a < 12; a++) {
            for (int b = 0; b < 12; b++) {
                bool a_first = jobs[a].priority != jobs[b].priority
                                   ? jobs[a].priority > jobs[b].priority
                                   : jobs[a].id < jobs[b].id;
                assert_false(jobs[a].ready && !started[a] && started[b] && a_first);
            }
        }
        forget(starts, 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(higher_priority_starts_first_then_the_older_job),
        cmocka_unit_test(of_two_gangs_that_need_all_one_starts_and_the_other_has_a_reason),
        cmocka_unit_test(a_small_job_does_not_overtake_a_big_one_that_waits),
        cmocka_unit_test(a_job_that_waits_for_one_type_does_not_block_another_type),
        cmocka_unit_test(a_gang_lies_on_one_node_if_it_fits_and_on_the_nodes_it_names),
        cmocka_unit_test(a_drained_device_is_left_alone),
        cmocka_unit_test(no_device_is_given_twice_whatever_the_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
