/* Attempts for accounting, in a database: what is found by time and tenant, and that a restored
 * database holds no devices. */
#include "tests/unit/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "server/account.h"
#include "server/sched/sched.h"
#include "server/store/access_rows.h"
#include "server/store/backup.h"
#include "server/store/usage_rows.h"
#include "server/tenants.h"

#define CHECK(call) assert_int_equal((call), 0)
#define SECOND ((int64_t)1000000)

static int64_t put_job(struct store *s, const char *tenant)
{
    struct job_row row = {.state = JOB_QUEUED, .priority = 500, .devices = 2, .created_us = 1};
    snprintf(row.name, sizeof row.name, "of-%.50s", tenant);
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.user, sizeof row.user, "ann");
    snprintf(row.cause, sizeof row.cause, "new");
    CHECK(store_job_insert(s, &row, "x", 1, "y", 1, NULL));
    return row.id;
}

/* end_us 0 = it holds its devices still. */
static void put_attempt(struct store *s, int64_t job, int32_t number, int64_t begin_us,
                        int64_t end_us)
{
    struct attempt_row a = {.number = number,
                            .condition = ATTEMPT_STARTED,
                            .num_devices = 2,
                            .wait_us = 7,
                            .created_us = begin_us};
    a.token_sha256[0] = (uint8_t)number;
    a.token_sha256[1] = (uint8_t)job;
    CHECK(store_attempt_insert(s, job, &a, "here:0-1", "", 0, NULL));
    if (end_us) {
        a.condition = ATTEMPT_GONE;
        a.gone_us = a.ended_us = end_us;
        a.device_us = account_device_us(2, end_us - begin_us);
        CHECK(store_attempt_update(s, job, &a, NULL));
    }
}

struct found {
    int num;
    int64_t device_us, live;
};

static bool count(void *arg, const struct usage_row *r)
{
    struct found *f = arg;
    f->num++;
    f->device_us += r->device_us;
    f->live += r->gone_us == 0;
    assert_int_equal(r->devices, 2);
    return true;
}

static struct found between(struct store *s, const char *tenant, int64_t from, int64_t to)
{
    struct found f = {0};
    CHECK(store_usage_between(s, tenant, from, to, count, &f, NULL));
    return f;
}

static void attempts_are_found_by_tenant_and_time(void **state)
{
    struct store_fixture *f = *state;
    int64_t red = put_job(f->s, "red"), blue = put_job(f->s, "blue");
    put_attempt(f->s, red, 1, 10 * SECOND, 20 * SECOND);
    put_attempt(f->s, red, 2, 30 * SECOND, 40 * SECOND);
    put_attempt(f->s, red, 3, 50 * SECOND, 0);
    put_attempt(f->s, blue, 1, 15 * SECOND, 35 * SECOND);
    struct found all = between(f->s, "red", 0, INT64_MAX);
    assert_int_equal(all.num, 3);
    assert_int_equal(all.live, 1);
    assert_int_equal(all.device_us, 40 * SECOND);
    assert_int_equal(between(f->s, "red", 21 * SECOND, 30 * SECOND).num, 0);
    assert_int_equal(between(f->s, "red", 20 * SECOND, 31 * SECOND).num, 2);
    assert_int_equal(between(f->s, "red", 60 * SECOND, INT64_MAX).num, 1);
    assert_int_equal(between(f->s, "blue", 0, INT64_MAX).num, 1);
    assert_int_equal(between(f->s, "nobody", 0, INT64_MAX).num, 0);
    struct found of_job = {0};
    CHECK(store_usage_of_job(f->s, red, count, &of_job, NULL));
    assert_int_equal(of_job.num, 3);
    assert_int_equal(of_job.device_us, all.device_us);
    int64_t held, queued;
    CHECK(store_usage_now(f->s, "red", &held, &queued, NULL));
    assert_int_equal(held, 2);
    assert_int_equal(queued, 1);
}

/* A year of attempts is asked of indexes alone: a row of the table has 200 bytes that nobody needs
 * for it. */
static void questions_are_answered_from_indexes(void **state)
{
    struct store_fixture *f = *state;
    static const char *const questions[] = {
        "SELECT job, number, num_devices, created_us, gone_us, device_us, wait_us, borrowed, "
        "evicted FROM attempts INDEXED BY attempts_over WHERE condition = 5 AND tenant = 'red' AND "
        "gone_us >= 1 AND created_us < 2",
        "SELECT job, number, num_devices, created_us, gone_us, device_us, wait_us, borrowed, "
        "evicted FROM attempts INDEXED BY attempts_now WHERE condition < 5 AND tenant = 'red' AND "
        "created_us < 2",
        "SELECT count(*) FROM jobs INDEXED BY jobs_queued WHERE state = 1 AND tenant = 'red'"};
    sqlite3 *db;
    CHECK(sqlite3_open(f->path, &db));
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        char text[600];
        sqlite3_stmt *q;
        snprintf(text, sizeof text, "EXPLAIN QUERY PLAN %s", questions[i]);
        CHECK(sqlite3_prepare_v2(db, text, -1, &q, NULL));
        assert_int_equal(sqlite3_step(q), SQLITE_ROW);
        const char *how = (const char *)sqlite3_column_text(q, 3);
        if (!strstr(how, "SEARCH") || !strstr(how, "USING COVERING INDEX")) {
            fail_msg("%s", how);
        }
        sqlite3_finalize(q);
    }
    sqlite3_close(db);
}

/* The scheduler's use is that of the rows, by quota's tenant; attempts that run are for who loads
 * their jobs. */
static void use_is_made_from_rows_at_the_start(void **state)
{
    struct store_fixture *f = *state;
    struct tenant_row t = {.name = "red", .created_us = 1};
    CHECK(store_tenant_put(f->s, &t, NULL));
    t.quota_devices = 3;
    t.max_devices = 5;
    t.weight = 2;
    CHECK(store_tenant_set_quota(f->s, &t, NULL));
    int64_t red = put_job(f->s, "red"), hour = 3600 * SECOND, now = 100000 * hour;
    put_attempt(f->s, red, 1, now - 2 * hour, now - hour);
    put_attempt(f->s, red, 2, now - hour, 0);
    put_attempt(f->s, red, 3, 0, hour); /* long ago */
    struct tenants *kept = tenants_new(1), *all = tenants_new(1);
    CHECK(tenants_open(all, f->s, 5000, now, NULL));
    tenants_charge(kept, tenants_add(kept, "red"), 2, 3600000, 3600000, 5000);
    int32_t i = tenants_find(all, "red"), num;
    assert_true(i >= 0);
    double use = tenants_sched(all, 5000, &num)[i].usage;
    double expected = tenants_sched(kept, 5000, &num)[0].usage;
    assert_true(use > 0 && use - expected < 1e-6 * expected && expected - use < 1e-6 * expected);
    assert_int_equal(tenants_held(all, i), 0);
    assert_int_equal(tenants_quota(all, i)->devices, 3);
    assert_int_equal(tenants_quota(all, i)->max_devices, 5);
    tenants_free(kept);
    tenants_free(all);
}

/* [10] What ran when the backup was made counts up to the last word of it, once, and holds nothing;
 * nothing is kept for who waited for that. */
static void a_restored_database_holds_no_devices(void **state)
{
    struct store_fixture *f = *state;
    int64_t red = put_job(f->s, "red");
    put_attempt(f->s, red, 1, 10 * SECOND, 20 * SECOND);
    put_attempt(f->s, red, 2, 30 * SECOND, 0);
    Event e = EVENT__INIT;
    e.has_job_id = e.has_time_us = 1;
    e.job_id = red;
    e.time_us = 45 * SECOND;
    e.kind = (char *)(uintptr_t) "note";
    CHECK(store_event_insert(f->s, &e, NULL));
    int64_t waits = put_job(f->s, "red");
    CHECK(store_job_set_claim(f->s, waits, "host:0-1", NULL));
    store_close(f->s);
    CHECK(store_restored(f->path, NULL, NULL, 0, NULL));
    CHECK(store_open(&f->s, f->path, NULL));
    struct found all = between(f->s, "red", 0, INT64_MAX);
    assert_int_equal(all.live, 0);
    assert_int_equal(all.device_us, 2 * (10 + 15) * SECOND);
    struct buf claim = {0};
    assert_int_equal(store_job_claim(f->s, waits, &claim, NULL), 1);
    assert_string_equal(claim.data, "");
    buf_free(&claim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(attempts_are_found_by_tenant_and_time, store_fixture_setup,
                                        store_fixture_teardown),
        cmocka_unit_test_setup_teardown(questions_are_answered_from_indexes, store_fixture_setup,
                                        store_fixture_teardown),
        cmocka_unit_test_setup_teardown(use_is_made_from_rows_at_the_start, store_fixture_setup,
                                        store_fixture_teardown),
        cmocka_unit_test_setup_teardown(a_restored_database_holds_no_devices, store_fixture_setup,
                                        store_fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
