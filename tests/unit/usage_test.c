/* Sums over attempts: exact, cut to a time, the same by tenant as by job. */
#include "server/usage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/account.h"

#define SECOND ((int64_t)1000000)

static struct usage_row attempt(int64_t job, int64_t devices, int64_t from_us, int64_t to_us)
{
    return (struct usage_row){.job = job,
                              .number = 1,
                              .devices = devices,
                              .created_us = from_us,
                              .gone_us = to_us,
                              .device_us = account_device_us(devices, to_us - from_us)};
}

static struct usage_sum sum_of(int64_t from_us, int64_t to_us, const struct usage_row *rows,
                               size_t num)
{
    struct usage *u = usage_new(from_us, to_us, to_us);
    struct usage_sum sum;
    for (size_t i = 0; i < num; i++) {
        assert_true(usage_take(u, &rows[i]));
    }
    usage_sum(u, &sum);
    usage_free(u);
    return sum;
}

static void only_the_part_within_the_time_counts(void **state)
{
    (void)state;
    const struct usage_row rows[] = {
        attempt(1, 4, 0, 10 * SECOND),           /* 5 s of it */
        attempt(2, 2, 6 * SECOND, 8 * SECOND),   /* all */
        attempt(2, 1, 14 * SECOND, 30 * SECOND), /* 1 s */
        attempt(3, 9, 0, 100 * SECOND),          /* 10 s */
        attempt(4, 9, 0, 5 * SECOND),            /* none: it was gone at the beginning */
    };
    struct usage_sum s = sum_of(5 * SECOND, 15 * SECOND, rows, 5);
    assert_int_equal(s.devices.s, 4 * 5 + 2 * 2 + 1 + 9 * 10);
    assert_int_equal(s.devices.us, 0);
    assert_int_equal(s.attempts, 5);
    assert_int_equal(s.jobs, 4);
}

/* Times that meet neither overlap nor leave a gap: their sums are the sum of the whole. */
static void sums_of_parts_are_the_sum_of_the_whole(void **state)
{
    (void)state;
    enum { NUM = 2000, PARTS = 13 };
    struct usage_row *rows = calloc(NUM, sizeof *rows);
    const int64_t end_us = 5000 * SECOND;
    struct usage_time whole = {0}, parts = {0}, held = {0};
    for (uint64_t i = 0; i < NUM; i++) {
        int64_t from = (int64_t)(rng_u64(1, 0, i) % (uint64_t)end_us);
        int64_t to = from + (int64_t)(rng_u64(1, 1, i) % (uint64_t)(end_us - from));
        rows[i] = attempt((int64_t)(i % 700), 1 + (int64_t)(rng_u64(1, 2, i) % 1000), from, to);
        usage_add(&held, rows[i].device_us);
    }
    struct usage_sum all = sum_of(0, end_us, rows, NUM);
    whole = all.devices;
    assert_memory_equal(&whole, &held, sizeof held);
    for (int64_t p = 0; p < PARTS; p++) {
        struct usage_sum s = sum_of(end_us * p / PARTS, end_us * (p + 1) / PARTS, rows, NUM);
        usage_add(&parts, s.devices.us);
        parts.s += s.devices.s;
    }
    assert_memory_equal(&whole, &parts, sizeof parts);
    free(rows);
}

static void add_job(void *arg, int64_t job, const struct usage_sum *sum)
{
    struct usage_sum *total = arg;
    assert_true(job >= 0);
    usage_add(&total->devices, sum->devices.us);
    total->devices.s += sum->devices.s;
    total->attempts += sum->attempts;
    total->jobs += sum->jobs;
    total->evictions += sum->evictions;
}

/* [10] By job and by tenant the same attempts are counted, each once. */
static void jobs_add_up_to_their_tenant(void **state)
{
    (void)state;
    struct usage *u = usage_new(0, 1000 * SECOND, 1000 * SECOND);
    struct usage_sum by_tenant, by_job = {0};
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 5000; i++) {
            int64_t from = (int64_t)(rng_u64(2, 0, i) % (uint64_t)(900 * SECOND));
            struct usage_row r = attempt((int64_t)(rng_u64(2, 1, i) % 321), 3, from,
                                         from + (int64_t)(rng_u64(2, 2, i) % (uint64_t)SECOND));
            r.evicted = i % 7 == 0;
            assert_true(usage_take(u, &r));
        }
        if (round == 0) {
            usage_sum(u, &by_tenant);
        } else {
            usage_by_job(u, add_job, &by_job);
        }
    }
    usage_free(u);
    assert_int_equal(by_tenant.devices.s, by_job.devices.s);
    assert_int_equal(by_tenant.devices.us, by_job.devices.us);
    assert_int_equal(by_tenant.attempts, by_job.attempts);
    assert_int_equal(by_tenant.evictions, by_job.evictions);
    assert_int_equal(by_tenant.jobs, by_job.jobs);
    assert_int_equal(by_tenant.evictions, (5000 + 6) / 7);
}

/* One that holds its devices counts up to now, and never backwards. */
static void what_still_runs_counts_up_to_now(void **state)
{
    (void)state;
    struct usage_row r = {.job = 1, .devices = 2, .created_us = 10 * SECOND};
    struct usage *u = usage_new(0, 100 * SECOND, 30 * SECOND);
    struct usage_sum s;
    assert_true(usage_take(u, &r));
    usage_sum(u, &s);
    assert_int_equal(s.devices.s, 40);
    usage_free(u);
    assert_int_equal(usage_device_us(&r, 30 * SECOND), 40 * SECOND);
    assert_int_equal(usage_device_us(&r, 5 * SECOND), 0);
}

/* Waits: of attempts that began in the time; p95 is a wait that there was (nearest rank). */
static void waits_are_of_attempts_that_began_in_the_time(void **state)
{
    (void)state;
    struct usage_row rows[101];
    for (int i = 0; i < 100; i++) {
        rows[i] = attempt(i, 1, 1000 * SECOND + i, 2000 * SECOND);
        rows[i].wait_us = (int64_t)(37 * i % 100 + 1) * SECOND;
    }
    rows[100] = attempt(200, 1, 0, 2000 * SECOND);
    rows[100].wait_us = 100000 * SECOND;
    struct usage_sum s = sum_of(500 * SECOND, 3000 * SECOND, rows, 101);
    assert_true(s.wait_mean_s == 50.5);
    assert_true(s.wait_p95_s == 95);
    s = sum_of(500 * SECOND, 3000 * SECOND, rows, 1);
    assert_true(s.wait_p95_s == s.wait_mean_s && s.wait_mean_s == 1);
    s = sum_of(0, 1, rows, 0);
    assert_true(s.wait_p95_s == 0 && s.wait_mean_s == 0);
}

static int rising(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The quick way to the 95th of 100 finds what sorting finds. */
static void the_percentile_is_that_of_sorted_waits(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 300; seed++) {
        size_t num = 1 + rng_u64(seed, 0, 0) % 60;
        struct usage_row rows[60];
        int64_t waits[60];
        for (size_t i = 0; i < num; i++) {
            rows[i] = attempt((int64_t)i, 1, 0, SECOND);
            waits[i] = rows[i].wait_us = (int64_t)(rng_u64(seed, 1, i) % (1 + seed % 9)) * SECOND;
        }
        struct usage_sum s = sum_of(0, 10 * SECOND, rows, num);
        qsort(waits, num, sizeof *waits, rising);
        assert_true(s.wait_p95_s == (double)waits[(95 * num + 99) / 100 - 1] / 1e6);
    }
}

/* [12] Sums of the largest that there may be don't overflow. */
static void sums_do_not_overflow(void **state)
{
    (void)state;
    struct usage_time t = {0};
    for (int i = 0; i < 1000; i++) {
        usage_add(&t, ACCOUNT_MOST_US);
    }
    assert_true(t.s > 0 && t.us >= 0 && t.us < SECOND);
    assert_true(usage_seconds(&t) > 5e14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_part_within_the_time_counts),
        cmocka_unit_test(sums_of_parts_are_the_sum_of_the_whole),
        cmocka_unit_test(jobs_add_up_to_their_tenant),
        cmocka_unit_test(what_still_runs_counts_up_to_now),
        cmocka_unit_test(waits_are_of_attempts_that_began_in_the_time),
        cmocka_unit_test(the_percentile_is_that_of_sorted_waits),
        cmocka_unit_test(sums_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
