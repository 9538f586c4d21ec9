/* server/store: the database. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/store/migrate.h"
#include "tests/unit/store_fixture.h"

/* Runs SQL behind the store's back. */
static void meddle(const struct store_fixture *f, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
    sqlite3_close(db);
}

static void a_job_comes_back_as_it_was_stored(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 40);
    struct job_row row, again;
    assert_int_equal(store_job_get(f->s, id, &row, NULL), 1);
    row.state = JOB_STOPPING;
    row.target = JOB_PAUSED;
    row.step = 17;
    row.loss = 0.1 + 0.2; /* every bit of it */
    row.mark_step = 12;
    row.restarts = 2;
    row.not_before_us = 99;
    row.evictions = 4;
    row.queued_us = 5;
    row.waits_us = 6;
    row.wait_us = 7;
    snprintf(row.message, sizeof row.message, "why it's so");
    row.attempt.condition = ATTEMPT_STARTED;
    row.attempt.pid = 4711;
    row.attempt.start_time = 1234567;
    row.attempt.acked_seq = 50;
    row.attempt.device_us = 1234;
    row.attempt.yields_to = 9;
    row.attempt.evicted = true;
    snprintf(row.attempt.boot_id, sizeof row.attempt.boot_id, "boot");
    assert_int_equal(store_job_update(f->s, &row, NULL), 0);
    assert_int_equal(store_attempt_update(f->s, id, &row.attempt, NULL), 0);
    assert_int_equal(store_job_get(f->s, id, &again, NULL), 1);
    assert_true(row.loss == again.loss);
    assert_true(isnan(again.mfu));
    assert_int_equal(again.target, JOB_PAUSED);
    assert_int_equal(again.step, 17);
    assert_int_equal(again.mark_step, 12);
    assert_int_equal(again.restarts, 2);
    assert_int_equal(again.not_before_us, 99);
    assert_string_equal(again.message, "why it's so");
    assert_memory_equal(&again.attempt, &row.attempt, sizeof row.attempt);
    assert_int_equal(again.evictions, 4);
    assert_int_equal(again.queued_us, 5);
    assert_int_equal(again.waits_us, 6);
    assert_int_equal(again.wait_us, 7);
    assert_int_equal(again.attempt.num_devices, 2);
    assert_true(again.attempt.borrowed);
    assert_int_equal(store_job_get(f->s, id + 1, &again, NULL), 0);
}

/* Devices are names, of any number and length, whatever cluster the server has later. */
static void names_of_devices_come_back_whole(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    struct buf have = {0}, many = {0};
    assert_int_equal(store_attempt_devices(f->s, id, 1, &have, NULL), 1);
    assert_string_equal(have.data, "here:3,there:700");
    assert_int_equal(store_attempt_devices(f->s, id, 2, &have, NULL), 0);
    assert_string_equal(have.data, "");
    assert_int_equal(store_job_claim(f->s, id, &have, NULL), 1);
    assert_string_equal(have.data, "");
    for (int i = 0; i < 20000; i++) {
        buf_printf(&many, "%snode%d:0-7", i ? "," : "", i);
    }
    assert_int_equal(store_job_set_claim(f->s, id, many.data, NULL), 0);
    assert_int_equal(store_job_claim(f->s, id, &have, NULL), 1);
    assert_string_equal(have.data, many.data);
    assert_int_equal(store_job_set_claim(f->s, id, "", NULL), 0);
    assert_int_equal(store_job_claim(f->s, id, &have, NULL), 1);
    assert_string_equal(have.data, "");
    buf_free(&have);
    buf_free(&many);
}

static void a_job_may_have_as_many_devices_as_a_cluster_and_no_more(void **state)
{
    struct store_fixture *f = *state;
    struct job_row row = {.state = JOB_QUEUED, .devices = 131072};
    snprintf(row.name, sizeof row.name, "wide");
    assert_int_equal(store_job_insert(f->s, &row, "", 0, "", 0, NULL), 0);
    row.devices = 131073;
    assert_int_equal(store_job_insert(f->s, &row, "", 0, "", 0, NULL), -1);
}

static void a_drain_is_kept_once_for_a_node_or_device_until_it_is_removed(void **state)
{
    struct store_fixture *f = *state;
    struct drain_row all = {.node = "b", .device = -1, .reason = "fans", .user = "ann"};
    struct drain_row one = {.node = "a", .device = 3, .user = "ann", .let_finish = true};
    assert_int_equal(store_drain_put(f->s, &all, NULL), 0);
    assert_int_equal(store_drain_put(f->s, &one, NULL), 0);
    snprintf(all.reason, sizeof all.reason, "fans again");
    all.time_us = 7;
    assert_int_equal(store_drain_put(f->s, &all, NULL), 0);
    store_close(f->s);
    assert_int_equal(store_open(&f->s, f->path, NULL), 0);
    struct drain_row *rows;
    size_t num;
    assert_int_equal(store_drain_list(f->s, &rows, &num, NULL), 0);
    assert_int_equal(num, 2);
    assert_string_equal(rows[0].node, "a");
    assert_int_equal(rows[0].device, 3);
    assert_true(rows[0].let_finish);
    assert_string_equal(rows[1].reason, "fans again");
    assert_int_equal(rows[1].time_us, 7);
    free(rows);
    assert_int_equal(store_drain_remove(f->s, "a", 3, NULL), 0);
    assert_int_equal(store_drain_remove(f->s, "b", 3, NULL), 0); /* there is none */
    assert_int_equal(store_drain_list(f->s, &rows, &num, NULL), 0);
    assert_int_equal(num, 1);
    free(rows);
}

/* What has been committed is there after any end of the process. */
static void a_commit_outlives_the_process_and_a_rollback_leaves_nothing(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(store_begin(f->s, NULL), 0);
    int64_t kept = store_fixture_job(f->s, "kept");
    assert_int_equal(store_savepoint(f->s, NULL), 0);
    store_fixture_job(f->s, "undone");
    assert_int_equal(store_undo(f->s, NULL), 0);
    assert_int_equal(store_commit(f->s, NULL), 0);
    assert_int_equal(store_begin(f->s, NULL), 0);
    store_fixture_job(f->s, "rolled-back");
    store_rollback(f->s);
    store_close(f->s);
    assert_int_equal(store_open(&f->s, f->path, NULL), 0);
    struct store_job_filter all = {.limit = 10};
    struct job_row *rows;
    size_t num;
    assert_int_equal(store_job_list(f->s, &all, &rows, &num, NULL), 0);
    assert_int_equal(num, 1);
    assert_int_equal(rows[0].id, kept);
    free(rows);
}

static void a_job_is_found_by_number_and_by_a_name_that_fits_one(void **state)
{
    struct store_fixture *f = *state;
    int64_t one = store_fixture_job(f->s, "one");
    store_fixture_job(f->s, "twice");
    store_fixture_job(f->s, "twice");
    int64_t year = store_fixture_job(f->s, "2024");
    int64_t id = 0;
    struct error err = {0};
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)one);
    assert_int_equal(store_job_find(f->s, number, NULL, &id, &err), 1);
    assert_int_equal(id, one);
    assert_int_equal(store_job_find(f->s, "one", NULL, &id, &err), 1);
    assert_int_equal(id, one);
    assert_int_equal(store_job_find(f->s, "2024", NULL, &id, &err), 1);
    assert_int_equal(id, year);
    assert_int_equal(store_job_find(f->s, "twice", NULL, &id, &err), 0);
    assert_non_null(strstr(err.text, "several jobs are named \"twice\" (3, 2)"));
    struct store_job_filter named = {.name = "twice", .limit = 10};
    struct job_row *rows;
    size_t num;
    assert_int_equal(store_job_list(f->s, &named, &rows, &num, &err), 0);
    assert_int_equal(num, 2);
    assert_true(rows[0].id == 3 && rows[1].id == 2);
    free(rows);
    named.tenant = "other";
    assert_int_equal(store_job_list(f->s, &named, &rows, &num, &err), 0);
    assert_int_equal(num, 0);
    free(rows);
    assert_int_equal(store_job_find(f->s, "none", NULL, &id, &err), 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    /* Scenario 14: another tenant's job doesn't exist. */
    assert_int_equal(store_job_find(f->s, number, "other", &id, &err), 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(store_job_find(f->s, "999999999999999999999999", NULL, &id, &err), 0);
    assert_int_equal(store_job_find(f->s, "", NULL, &id, &err), 0);
    assert_int_equal(store_job_find(f->s, NULL, NULL, &id, &err), 0);
}

static void lists_are_paged_by_id_newest_first(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        store_fixture_job(f->s, "j");
    }
    struct store_job_filter filter = {.limit = 2};
    struct job_row *rows;
    size_t num;
    int64_t want = 5;
    while (want > 0) {
        assert_int_equal(store_job_list(f->s, &filter, &rows, &num, NULL), 0);
        for (size_t i = 0; i < num; i++) {
            assert_int_equal(rows[i].id, want--);
        }
        filter.before_id = rows[num - 1].id;
        free(rows);
    }
    filter = (struct store_job_filter){.limit = 9, .states = 1u << JOB_FAILED};
    assert_int_equal(store_job_list(f->s, &filter, &rows, &num, NULL), 0);
    assert_int_equal(num, 0);
    free(rows);
}

/* Scenario 3: one bad row is one bad row. */
static void a_damaged_spec_is_an_error_of_its_own_kind(void **state)
{
    struct store_fixture *f = *state;
    int64_t good = store_fixture_job(f->s, "good"), bad = store_fixture_job(f->s, "bad");
    meddle(f, "UPDATE specs SET spec = x'0a03626164ff' WHERE job = 2");
    JobSpec *spec;
    struct error err = {0};
    assert_int_equal(store_job_spec(f->s, bad, &spec, &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    assert_int_equal(store_job_spec(f->s, good, &spec, &err), 0);
    assert_string_equal(spec->name, "good");
    job_spec__free_unpacked(spec, NULL);
}

/* Scenario 3, for what else is a blob: bytes that still parse, but aren't what was written. */
static void damaged_facts_and_plans_are_found_too(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    struct error err = {0};
    ProbeReply *facts;
    Plan *plan;
    assert_int_equal(store_job_facts(f->s, id, &facts, &err), 0);
    probe_reply__free_unpacked(facts, NULL);
    assert_int_equal(store_attempt_plan(f->s, id, 1, &plan, &err), 0);
    plan__free_unpacked(plan, NULL);
    meddle(f, "UPDATE specs SET facts = x'f80601'; UPDATE plans SET plan = x'f80601'");
    assert_int_equal(store_job_facts(f->s, id, &facts, &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    assert_int_equal(store_attempt_plan(f->s, id, 1, &plan, &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    /* What was written before there was a checksum is taken as it is. */
    meddle(f, "UPDATE specs SET facts_sha256 = NULL; UPDATE plans SET sha256 = NULL");
    assert_int_equal(store_job_facts(f->s, id, &facts, &err), 0);
    probe_reply__free_unpacked(facts, NULL);
    assert_int_equal(store_attempt_plan(f->s, id, 1, &plan, &err), 0);
    plan__free_unpacked(plan, NULL);
}

/* A key stands for one job of its user, and for the spec that came with it. */
static void a_key_belongs_to_a_user_and_a_spec(void **state)
{
    struct store_fixture *f = *state;
    const uint8_t spec[HASH_BYTES] = {1}, other[HASH_BYTES] = {2};
    int64_t id = store_fixture_job(f->s, "one"), found = 0;
    bool same = false;
    assert_int_equal(store_key_insert(f->s, "red", "ann", "k", spec, id, NULL), 0);
    assert_int_equal(store_key_get(f->s, "red", "ann", "k", spec, &found, &same, NULL), 1);
    assert_int_equal(found, id);
    assert_true(same);
    assert_int_equal(store_key_get(f->s, "red", "ann", "k", other, &found, &same, NULL), 1);
    assert_false(same);
    assert_int_equal(store_key_get(f->s, "red", "bob", "k", spec, &found, &same, NULL), 0);
    assert_int_equal(store_key_insert(f->s, "red", "ann", "k", spec, id, NULL), -1);
    /* Of before there was a hash nobody knows the spec. */
    meddle(f, "UPDATE idempotency_keys SET spec_sha256 = NULL");
    assert_int_equal(store_key_get(f->s, "red", "ann", "k", other, &found, &same, NULL), 1);
    assert_true(same);
}

/* ---- migrations ---- */

#define MIGRATIONS_MAX 100

/* All there are, with room for one more; returns how many. */
static size_t copy_migrations(struct migration list[MIGRATIONS_MAX])
{
    size_t num = 0;
    memset(list, 0, MIGRATIONS_MAX * sizeof *list);
    while (migrations[num].name) {
        assert_true(num + 2 < MIGRATIONS_MAX);
        list[num] = migrations[num];
        num++;
    }
    return num;
}

static void a_migration_that_was_changed_after_it_ran_is_refused(void **state)
{
    struct store_fixture *f = *state;
    struct migration list[MIGRATIONS_MAX];
    copy_migrations(list);
    list[0].sql = "SELECT 1; -- changed";
    struct error err = {0};
    assert_int_equal(migrate_run(f->s, migrations, &err), 0); /* again: nothing to do */
    assert_int_equal(migrate_run(f->s, list, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "0001_initial.sql was changed"));
}

static void a_database_of_a_newer_version_is_refused(void **state)
{
    struct store_fixture *f = *state;
    meddle(f, "INSERT INTO migrations VALUES (999, '0999_future.sql', 'x', 0)");
    store_close(f->s);
    f->s = NULL;
    struct error err = {0};
    assert_int_equal(store_open(&f->s, f->path, &err), -1);
    assert_non_null(strstr(err.text, "newer tandemd"));
}

static void a_migration_that_fails_leaves_the_database_as_it_was(void **state)
{
    struct store_fixture *f = *state;
    struct migration list[MIGRATIONS_MAX];
    size_t num = copy_migrations(list);
    int32_t before, version;
    assert_int_equal(store_schema_version(f->s, &before, NULL), 0);
    list[num] = (struct migration){"0900_x.sql", "CREATE TABLE x (a INT); SELECT nonsense"};
    struct error err = {0};
    assert_int_equal(migrate_run(f->s, list, &err), -1);
    assert_non_null(strstr(err.text, "migration 0900_x.sql"));
    assert_int_equal(store_schema_version(f->s, &version, NULL), 0);
    assert_int_equal(version, before);
    list[num].sql = "CREATE TABLE x (a INT)";
    assert_int_equal(migrate_run(f->s, list, &err), 0);
}

/* ---- checkpoints and events ---- */

static bool take_checkpoint(void *arg, const Checkpoint *c)
{
    int64_t **next = arg;
    *(*next)++ = c->step;
    return true;
}

static void checkpoints_are_listed_newest_first_and_stored_once(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    for (int64_t step = 10; step <= 30; step += 10) {
        Checkpoint c = CHECKPOINT__INIT;
        c.job_id = id;
        c.attempt = 1;
        c.step = step;
        c.path = (char *)(uintptr_t) "ckpt/x";
        assert_int_equal(store_checkpoint_insert(f->s, &c, NULL), 0);
        assert_int_equal(store_checkpoint_insert(f->s, &c, NULL), 0);
    }
    int64_t steps[8], *next = steps;
    assert_int_equal(store_checkpoint_list(f->s, id, -1, 0, 100, take_checkpoint, &next, NULL), 0);
    assert_int_equal(next - steps, 3);
    assert_int_equal(steps[0], 30);
    assert_int_equal(steps[2], 10);
    next = steps;
    assert_int_equal(store_checkpoint_list(f->s, id, 20, 0, 100, take_checkpoint, &next, NULL), 0);
    assert_int_equal(next - steps, 1);
}

static bool take_event(void *arg, const Event *e)
{
    struct buf *b = arg;
    buf_printf(b, "%s/%s ", e->kind, e->message ? e->message : "-");
    return true;
}

static void events_come_after_the_one_given_in_their_order(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one"), last;
    for (int i = 0; i < 3; i++) {
        Event e = EVENT__INIT;
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        e.job_id = id;
        e.kind = (char *)(uintptr_t) "note";
        e.message = i ? text : NULL;
        assert_int_equal(store_event_insert(f->s, &e, NULL), 0);
        assert_int_equal(e.id, i + 1);
    }
    struct buf b = {0};
    assert_int_equal(store_event_list(f->s, id, NULL, 0, 2, take_event, &b, NULL), 0);
    assert_string_equal(b.data, "note/- note/1 ");
    buf_clear(&b);
    assert_int_equal(store_event_list(f->s, 0, NULL, 2, 10, take_event, &b, NULL), 0);
    assert_string_equal(b.data, "note/2 ");
    buf_clear(&b);
    assert_int_equal(store_event_newest(f->s, id, 2, take_event, &b, NULL), 0);
    assert_string_equal(b.data, "note/1 note/2 ");
    buf_free(&b);
    assert_int_equal(store_event_last(f->s, &last, NULL), 0);
    assert_int_equal(last, 3);
}

int main(void)
{
#define WITH_STORE(test)                                                                           \
    cmocka_unit_test_setup_teardown(test, store_fixture_setup, store_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_STORE(a_job_comes_back_as_it_was_stored),
        WITH_STORE(names_of_devices_come_back_whole),
        WITH_STORE(a_job_may_have_as_many_devices_as_a_cluster_and_no_more),
        WITH_STORE(a_drain_is_kept_once_for_a_node_or_device_until_it_is_removed),
        WITH_STORE(a_commit_outlives_the_process_and_a_rollback_leaves_nothing),
        WITH_STORE(a_job_is_found_by_number_and_by_a_name_that_fits_one),
        WITH_STORE(lists_are_paged_by_id_newest_first),
        WITH_STORE(a_damaged_spec_is_an_error_of_its_own_kind),
        WITH_STORE(damaged_facts_and_plans_are_found_too),
        WITH_STORE(a_key_belongs_to_a_user_and_a_spec),
        WITH_STORE(a_migration_that_was_changed_after_it_ran_is_refused),
        WITH_STORE(a_database_of_a_newer_version_is_refused),
        WITH_STORE(a_migration_that_fails_leaves_the_database_as_it_was),
        WITH_STORE(checkpoints_are_listed_newest_first_and_stored_once),
        WITH_STORE(events_come_after_the_one_given_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
