/* Quotas, what tenants hold, and use that decays, in the owner's memory. */
#include "server/tenants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/account.h"
#include "server/sched/sched.h"

#define HOUR_MS ((int64_t)3600 * 1000)

static void close_to(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(1, fabs(b)))) {
        fail_msg("%.15g, not %.15g", a, b);
    }
}

static double use_of(struct tenants *t, int32_t i, int64_t now_ms)
{
    int32_t num;
    return tenants_sched(t, now_ms, &num)[i].usage;
}

/* An index is for good: jobs keep it. */
static void a_tenant_is_found_by_name_and_keeps_its_index(void **state)
{
    (void)state;
    struct tenants *t = tenants_new(1);
    char name[16];
    assert_int_equal(tenants_find(t, "red"), -1);
    for (int32_t i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "t%d", i * 7919 % 500);
        assert_int_equal(tenants_add(t, name), i);
        assert_int_equal(tenants_add(t, name), i);
    }
    for (int32_t i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "t%d", i * 7919 % 500);
        assert_int_equal(tenants_find(t, name), i);
    }
    assert_int_equal(tenants_quota(t, 0)->devices, -1);
    assert_int_equal(tenants_quota(t, 0)->max_devices, -1);
    tenants_free(t);
}

/* What a device was held for counts half after the half-life, whole at once, and nothing where the
 * half-life is 0. */
static void use_halves_with_each_half_life(void **state)
{
    (void)state;
    struct tenants *t = tenants_new(2), *never = tenants_new(0);
    int32_t red = tenants_add(t, "red");
    tenants_hold(t, red, 4, 1000);
    close_to(use_of(t, red, 1000), 0);
    tenants_hold(t, red, -4, 1000 + 1000);
    double whole = use_of(t, red, 2000);
    assert_true(fabs(whole - 4) < 0.001);
    close_to(use_of(t, red, 2000 + 2 * HOUR_MS), whole / 2);
    close_to(use_of(t, red, 2000 + 4 * HOUR_MS), whole / 4);
    tenants_add(never, "red");
    tenants_hold(never, 0, 4, 1000);
    close_to(use_of(never, 0, 1000 + HOUR_MS), 0);
    tenants_free(t);
    tenants_free(never);
}

/* Held for ever, use comes to a stand: what is added and what decays are the same. */
static void use_of_a_steady_tenant_has_a_limit(void **state)
{
    (void)state;
    struct tenants *t = tenants_new(1);
    tenants_add(t, "red");
    tenants_hold(t, 0, 10, 0);
    close_to(use_of(t, 0, 1000 * HOUR_MS), 10 * 3600 / log(2));
    tenants_free(t);
}

/* A restart makes the same use from the rows of what is over as was kept while it ran. */
static void use_made_from_rows_is_the_use_that_was_kept(void **state)
{
    (void)state;
    struct tenants *t = tenants_new(3), *again = tenants_new(3);
    tenants_add(t, "red");
    tenants_add(again, "red");
    int64_t now_ms = 5, end_ms = 200 * HOUR_MS;
    for (uint64_t i = 0; i < 100; i++) {
        int64_t devices = 1 + (int64_t)(rng_u64(1, 0, i) % 16);
        int64_t held_ms = (int64_t)(rng_u64(1, 1, i) % (uint64_t)HOUR_MS);
        tenants_hold(t, 0, devices, now_ms);
        now_ms += held_ms;
        tenants_hold(t, 0, -devices, now_ms);
        tenants_charge(again, 0, devices, held_ms, end_ms - now_ms, end_ms);
        now_ms += (int64_t)(rng_u64(1, 2, i) % (uint64_t)HOUR_MS);
    }
    assert_true(now_ms < end_ms);
    close_to(use_of(again, 0, end_ms), use_of(t, 0, end_ms));
    tenants_free(t);
    tenants_free(again);
}

/* [10] A batch that fails leaves nothing behind, one mail of it only its own. */
static void changes_are_put_back_to_a_mark(void **state)
{
    (void)state;
    struct tenants *t = tenants_new(1);
    const struct tenant_quota first = {8, 12, 1}, second = {4, 4, 2};
    int32_t red = tenants_add(t, "red"), blue = tenants_add(t, "blue");
    tenants_set(t, red, &first);
    tenants_hold(t, blue, 3, 0);
    tenants_keep(t);
    tenants_hold(t, blue, 2, HOUR_MS);
    size_t mark = tenants_mark(t);
    double use = use_of(t, blue, 2 * HOUR_MS);
    tenants_set(t, red, &second);
    tenants_hold(t, blue, 1, HOUR_MS);
    tenants_hold(t, blue, -6, HOUR_MS);
    tenants_add(t, "green");
    tenants_put_back(t, mark);
    assert_int_equal(tenants_quota(t, red)->devices, 8);
    assert_int_equal(tenants_held(t, blue), 5);
    close_to(use_of(t, blue, 2 * HOUR_MS), use);
    tenants_put_back(t, 0);
    assert_int_equal(tenants_held(t, blue), 3);
    assert_int_equal(tenants_quota(t, red)->max_devices, 12);
    assert_int_equal(tenants_find(t, "green"), 2);
    tenants_free(t);
}

static void the_scheduler_gets_quota_and_use_by_index(void **state)
{
    (void)state;
    struct tenants *t = tenants_new(1);
    const struct tenant_quota q = {8, 12, 2.5};
    int32_t num;
    tenants_add(t, "zoe");
    tenants_set(t, tenants_add(t, "ann"), &q);
    const struct sched_tenant *s = tenants_sched(t, 0, &num);
    assert_int_equal(num, 2);
    assert_string_equal(s[0].name, "zoe");
    assert_int_equal(s[0].quota, -1);
    assert_int_equal(s[0].max, -1);
    assert_string_equal(s[1].name, "ann");
    assert_int_equal(s[1].quota, 8);
    assert_int_equal(s[1].max, 12);
    close_to(s[1].weight, 2.5);
    tenants_free(t);
}

/* [34] Both ends seen: the wall clock doesn't matter. One end seen: at least what was seen, and
 * never less than nothing. */
static void device_time_survives_clocks_that_jump(void **state)
{
    (void)state;
    const int64_t day_us = 24 * 3600 * (int64_t)1000000, t0 = 1000 * day_us;
    struct account_span s = {
        .whole = true, .since_ms = 5000, .created_us = t0, .now_ms = 65000, .wall_us = t0 - day_us};
    assert_int_equal(account_held_us(&s), 60000000);
    s.wall_us = t0 + 400 * day_us;
    assert_int_equal(account_held_us(&s), 60000000);
    /* To the microsecond where the wall clock went right: the next attempt may begin at once. */
    s.wall_us = t0 + 59999123;
    assert_int_equal(account_held_us(&s), 59999123);
    s.now_ms = 5000;
    s.wall_us = t0 - 1;
    assert_int_equal(account_held_us(&s), 0);
    s.now_ms = 65000;
    s.whole = false;
    s.wall_us = t0 + 90000000;
    assert_int_equal(account_held_us(&s), 90000000);
    s.wall_us = t0 - day_us;
    assert_int_equal(account_held_us(&s), 60000000);
    s.now_ms = 1000;
    assert_int_equal(account_held_us(&s), 0);
    s.wall_us = INT64_MIN;
    assert_int_equal(account_held_us(&s), 0);
}

/* [12] No product of numbers from outside overflows. */
static void device_time_never_overflows_nor_is_negative(void **state)
{
    (void)state;
    assert_int_equal(account_device_us(8, 1000), 8000);
    assert_int_equal(account_device_us(0, 1000), 0);
    assert_int_equal(account_device_us(-3, 1000), 0);
    assert_int_equal(account_device_us(3, -1000), 0);
    assert_int_equal(account_device_us(INT64_MAX, INT64_MAX), ACCOUNT_MOST_US);
    assert_int_equal(account_device_us(131072, (int64_t)1 << 50), ACCOUNT_MOST_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_is_found_by_name_and_keeps_its_index),
        cmocka_unit_test(use_halves_with_each_half_life),
        cmocka_unit_test(use_of_a_steady_tenant_has_a_limit),
        cmocka_unit_test(use_made_from_rows_is_the_use_that_was_kept),
        cmocka_unit_test(changes_are_put_back_to_a_mark),
        cmocka_unit_test(the_scheduler_gets_quota_and_use_by_index),
        cmocka_unit_test(device_time_survives_clocks_that_jump),
        cmocka_unit_test(device_time_never_overflows_nor_is_negative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
