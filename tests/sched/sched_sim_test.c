/* Random histories over the scheduler: each test runs a profile of worlds over many seeds, and
 * every pass of every seed must keep the rules of check.c, check_rest.c and check_end.c.
 *
 * SCHED_SEED=n runs that seed alone, with what happens on stderr; SCHED_PROFILE=name picks the
 * test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/effort.h"
#include "tests/sched/world.h"

static void run(const char *name)
{
    const struct world_profile *p = world_profile(name);
    const char *only = getenv("SCHED_PROFILE"), *seed = getenv("SCHED_SEED");
    assert_non_null(p);
    if (only && strcmp(only, name) != 0) {
        skip();
    }
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    uint64_t num = seed ? 1 : (uint64_t)effort(1500, 150, 10);
    int64_t starts = 0, stops = 0, backfills = 0;
    for (uint64_t i = first; i < first + num; i++) {
        struct world *w = world_new(i, p);
        w->trace = seed ? stderr : NULL;
        if (!world_run(w)) {
            fail_msg("seed %llu: %s. SCHED_PROFILE=%s SCHED_SEED=%llu shows it",
                     (unsigned long long)i, w->why, name, (unsigned long long)i);
        }
        starts += w->num_starts;
        stops += w->num_stops;
        backfills += w->num_backfills;
        world_free(w);
    }
    print_message("%s: seeds %llu to %llu, %lld starts, %lld of them backfilled, %lld evictions\n",
                  name, (unsigned long long)first, (unsigned long long)(first + num - 1),
                  (long long)starts, (long long)backfills, (long long)stops);
    /* Worlds in which nothing of the kind happens would show nothing. */
    assert_true(seed || starts > (int64_t)num);
    assert_true(seed || stops > (int64_t)num / 4 || p->preemption <= .5);
    assert_true(seed || backfills > 0 || !p->exact);
}

/* [10] [15] [16] [21] [22]: one holder a device, all devices or none, and words that are true. */
static void a_gang_gets_all_its_devices_or_none(void **state)
{
    (void)state;
    run("gangs");
}

/* [19]: limits are the true ends here, so what is promised to the first in the queue is exact. */
static void the_first_in_the_queue_starts_no_later_than_promised(void **state)
{
    (void)state;
    run("reserve");
}

/* [11] [17] [20]: bounded, in order, no more than needed, and nobody else gets what they free. */
static void victims_are_few_and_make_room_for_whom_they_were_stopped(void **state)
{
    (void)state;
    run("preempt");
}

/* [13]: also where they change under what runs. */
static void quotas_bound_what_starts_and_stop_nothing_by_themselves(void **state)
{
    (void)state;
    run("quotas");
}

/* [18] [23]: a node that reports fewer devices is one with drained devices. */
static void a_drained_or_stuck_device_strands_nothing(void **state)
{
    (void)state;
    run("drains");
}

/* [19] [24]: priority, hold, release, dependencies, aging. */
static void jobs_start_in_order_whatever_is_changed_while_they_wait(void **state)
{
    (void)state;
    run("order");
}

static void all_of_it_together_keeps_the_rules(void **state)
{
    (void)state;
    run("all");
}

/* [19]: the same history, without backfill from the moment on at which a job is the first in the
 * queue: that job doesn't start earlier. */
static void backfill_delays_nobody_who_was_first(void **state)
{
    (void)state;
    const struct world_profile *p = world_profile("reserve");
    const char *only = getenv("SCHED_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    uint64_t num = only ? 1 : (uint64_t)effort(1000, 100, 10);
    int compared = 0;
    for (uint64_t seed = first; seed < first + num; seed++) {
        struct world *w = world_new(seed, p);
        assert_true(world_run(w));
        for (int32_t i = 0; i < w->num_jobs; i++) {
            if (w->jobs[i].head_ms < 0 || (i + (int32_t)seed) % 4 != 0) {
                continue;
            }
            struct world *twin = world_new(seed, p);
            twin->no_backfill_from_ms = w->jobs[i].head_ms;
            assert_true(world_run(twin));
            if (twin->jobs[i].first_start_ms < w->jobs[i].first_start_ms) {
                fail_msg("SCHED_SEED=%llu: job %d starts at %lld ms, without backfill at %lld",
                         (unsigned long long)seed, (int)i + 1, (long long)w->jobs[i].first_start_ms,
                         (long long)twin->jobs[i].first_start_ms);
            }
            compared++;
            world_free(twin);
        }
        world_free(w);
    }
    assert_true(only || compared > (int)num / 2);
}

/* A history that doesn't follow from its seed alone could not be looked at again. */
static void a_seed_gives_the_same_history_again(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct world *a = world_new(seed, world_profile("all"));
        struct world *b = world_new(seed, world_profile("all"));
        assert_true(world_run(a) == world_run(b));
        assert_true(a->num_passes == b->num_passes && a->num_starts == b->num_starts &&
                    a->charged_ms == b->charged_ms && a->now_ms == b->now_ms);
        world_free(a);
        world_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gang_gets_all_its_devices_or_none),
        cmocka_unit_test(the_first_in_the_queue_starts_no_later_than_promised),
        cmocka_unit_test(victims_are_few_and_make_room_for_whom_they_were_stopped),
        cmocka_unit_test(quotas_bound_what_starts_and_stop_nothing_by_themselves),
        cmocka_unit_test(a_drained_or_stuck_device_strands_nothing),
        cmocka_unit_test(jobs_start_in_order_whatever_is_changed_while_they_wait),
        cmocka_unit_test(all_of_it_together_keeps_the_rules),
        cmocka_unit_test(backfill_delays_nobody_who_was_first),
        cmocka_unit_test(a_seed_gives_the_same_history_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
