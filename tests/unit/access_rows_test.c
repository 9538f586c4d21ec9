/* Tables tenants, users, tokens, audit; and what one user's database becomes. */
#include "tests/unit/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "server/store/access_rows.h"
#include "server/store/migrate.h"

#define CHECK(call) assert_int_equal((call), 0)

static void put_user(struct store *s, const char *tenant, const char *name)
{
    struct tenant_row t = {.created_us = 1};
    struct user_row u = {.role = "member", .created_us = 1};
    snprintf(t.name, sizeof t.name, "%s", tenant);
    snprintf(u.tenant, sizeof u.tenant, "%s", tenant);
    snprintf(u.name, sizeof u.name, "%s", name);
    CHECK(store_tenant_put(s, &t, NULL));
    CHECK(store_user_put(s, &u, NULL));
}

static int64_t put_token(struct store *s, const char *tenant, const char *user, uint8_t digit)
{
    struct token_row row = {.prefix = "tnd_0", .created_us = 1};
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.user, sizeof row.user, "%s", user);
    memset(row.sha256, digit, sizeof row.sha256);
    CHECK(store_token_insert(s, &row, NULL));
    return row.id;
}

/* What is there already stays what it was, but for what may change. */
static void tenants_and_users_are_put_and_found(void **state)
{
    struct store_fixture *f = *state;
    struct user_row u;
    struct tenant_row t;
    assert_int_equal(store_tenant_get(f->s, "red", &t, NULL), 0);
    assert_int_equal(store_user_get(f->s, "default", "dev", &u, NULL), 1);
    assert_string_equal(u.role, "admin");
    put_user(f->s, "red", "ann");
    put_user(f->s, "blue", "ann");
    assert_int_equal(store_user_get(f->s, "red", "ann", &u, NULL), 1);
    assert_string_equal(u.role, "member");
    u.disabled = true;
    u.created_us = 99;
    CHECK(store_user_put(f->s, &u, NULL));
    assert_int_equal(store_user_get(f->s, "red", "ann", &u, NULL), 1);
    assert_true(u.disabled);
    assert_int_equal(u.created_us, 1);
    assert_int_equal(store_user_get(f->s, "blue", "ann", &u, NULL), 1);
    assert_false(u.disabled);
    snprintf(u.role, sizeof u.role, "king");
    assert_int_equal(store_user_put(f->s, &u, NULL), -1);
}

static bool collect_ids(void *arg, const struct token_row *row)
{
    int64_t **next = arg;
    *(*next)++ = row->id;
    return true;
}

static void tokens_are_listed_by_tenant_user_and_page(void **state)
{
    struct store_fixture *f = *state;
    put_user(f->s, "red", "ann");
    put_user(f->s, "red", "bob");
    put_user(f->s, "blue", "ann");
    int64_t red_ann = put_token(f->s, "red", "ann", 1), red_bob = put_token(f->s, "red", "bob", 2),
            blue_ann = put_token(f->s, "blue", "ann", 3);
    struct token_row row;
    assert_int_equal(store_token_get(f->s, red_bob, &row, NULL), 1);
    assert_int_equal(row.sha256[31], 2);
    row.revoked_us = 7;
    CHECK(store_token_update(f->s, &row, NULL));
    const struct {
        struct store_token_filter filter;
        int64_t want[4];
    } cases[] = {
        {{.limit = 10}, {red_ann, blue_ann}},
        {{.limit = 10, .ended = true}, {red_ann, red_bob, blue_ann}},
        {{.limit = 10, .tenant = "red"}, {red_ann}},
        {{.limit = 10, .tenant = "red", .ended = true}, {red_ann, red_bob}},
        {{.limit = 10, .tenant = "red", .user = "bob", .ended = true}, {red_bob}},
        {{.limit = 1, .ended = true, .after_id = red_ann}, {red_bob}},
        {{.limit = 10, .tenant = "green"}, {0}},
        {{.limit = 10, .user = "ann"}, {red_ann, blue_ann}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t got[8] = {0}, *next = got;
        CHECK(store_token_list(f->s, &cases[i].filter, collect_ids, &next, NULL));
        assert_memory_equal(got, cases[i].want, sizeof cases[i].want);
    }
    int64_t live;
    CHECK(store_token_count_live(f->s, "red", "bob", &live, NULL));
    assert_int_equal(live, 0);
    CHECK(store_token_used(f->s, red_ann, 60, NULL));
    CHECK(store_token_used(f->s, red_ann, 30, NULL));
    assert_int_equal(store_token_get(f->s, red_ann, &row, NULL), 1);
    assert_int_equal(row.last_used_us, 60);
    /* The hash of no token is there twice, and none is of nobody. */
    struct token_row twice = row;
    assert_int_equal(store_token_insert(f->s, &twice, NULL), -1);
    snprintf(twice.user, sizeof twice.user, "nobody");
    memset(twice.sha256, 9, sizeof twice.sha256);
    assert_int_equal(store_token_insert(f->s, &twice, NULL), -1);
}

static bool count_rows(void *arg, const struct audit_row *row)
{
    (void)row;
    ++*(int *)arg;
    return true;
}

static void old_audit_rows_and_ended_tokens_go(void **state)
{
    struct store_fixture *f = *state;
    put_user(f->s, "red", "ann");
    struct token_row row;
    int64_t old = put_token(f->s, "red", "ann", 1), live = put_token(f->s, "red", "ann", 2);
    assert_int_equal(store_token_get(f->s, old, &row, NULL), 1);
    row.revoked_us = 50;
    CHECK(store_token_update(f->s, &row, NULL));
    for (int64_t t = 0; t < 200; t += 10) {
        const struct audit_row a = {.time_us = t,
                                    .tenant = "red",
                                    .user = "ann",
                                    .method = "X/Y",
                                    .object = "",
                                    .result = "ok",
                                    .peer = "unix"};
        CHECK(store_audit_insert(f->s, &a, NULL, NULL));
    }
    assert_int_equal(store_audit_prune(f->s, 100, 4, NULL), 4);
    assert_int_equal(store_audit_prune(f->s, 100, 100, NULL), 6);
    assert_int_equal(store_audit_prune(f->s, 100, 100, NULL), 0);
    int num = 0;
    int64_t next;
    const struct store_audit_filter all = {.limit = 100, .window = 100};
    CHECK(store_audit_list(f->s, &all, count_rows, &num, &next, NULL));
    assert_int_equal(num, 10);
    assert_int_equal(next, 0);
    assert_int_equal(store_token_get(f->s, old, &row, NULL), 0);
    assert_int_equal(store_token_get(f->s, live, &row, NULL), 1);
    /* Its number doesn't come again. */
    assert_true(put_token(f->s, "red", "ann", 3) > live);
}

static bool collect_audit(void *arg, const struct audit_row *row)
{
    int64_t **at = arg;
    *(*at)++ = row->id;
    return true;
}

/* However rare what is looked for, a page looks through so many rows; going on from page to page
 * finds each once, newest first. */
static void the_audit_is_looked_through_page_by_page(void **state)
{
    struct store_fixture *f = *state;
    for (int64_t i = 1; i <= 100; i++) {
        const struct audit_row a = {.time_us = i,
                                    .tenant = i % 2 ? "red" : "blue",
                                    .user = i % 10 == 1 ? "ann" : "bob",
                                    .method = "X/Y",
                                    .object = "",
                                    .result = "ok",
                                    .peer = "unix"};
        CHECK(store_audit_insert(f->s, &a, NULL, NULL));
    }
    const struct store_audit_filter filters[] = {
        {.tenant = "red", .user = "ann", .limit = 3, .window = 7},
        {.user = "ann", .limit = 3, .window = 7},
        {.user = "ann", .limit = 1, .window = 1000},
        {.user = "ann", .limit = 10, .window = 100},
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        struct store_audit_filter filter = filters[i];
        int64_t got[32], *at = got, next = 0;
        int num_pages = 0;
        do {
            filter.before_id = next;
            CHECK(store_audit_list(f->s, &filter, collect_audit, &at, &next, NULL));
            assert_true(++num_pages <= 20);
        } while (next);
        assert_int_equal(at - got, 10);
        for (int k = 0; k < 10; k++) {
            assert_int_equal(got[k], 91 - 10 * k);
        }
    }
}

static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *q;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return n;
}

/* A database from before there were tenants: its jobs, keys and events are default's, dev's. */
static void the_data_of_one_user_becomes_tenant_default(void **state)
{
    (void)state;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, migrations[0].sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "INSERT INTO jobs (name, tenant, user, state, cause, priority, devices, "
                     "total_steps, created_us) VALUES ('one', 'default', 'dev', 1, 'new', 500, 1, "
                     "9, 5);"
                     "INSERT INTO idempotency_keys VALUES ('dev', 'k', 1);"
                     "INSERT INTO events (job, time_us, kind) VALUES (1, 5, 'submitted');",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_string_equal(migrations[1].name, "0002_tenants.sql");
    assert_int_equal(sqlite3_exec(db, migrations[1].sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(number(db, "SELECT count(*) FROM users WHERE tenant = 'default' AND name = "
                                "'dev' AND role = 'admin'"),
                     1);
    assert_int_equal(number(db, "SELECT job FROM idempotency_keys WHERE tenant = 'default' AND "
                                "user = 'dev' AND key = 'k'"),
                     1);
    assert_int_equal(number(db, "SELECT count(*) FROM events WHERE tenant = 'default'"), 1);
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    sqlite3_close(db);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, store_fixture_setup, store_fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(tenants_and_users_are_put_and_found),
        T(tokens_are_listed_by_tenant_user_and_page),
        T(old_audit_rows_and_ended_tokens_go),
        T(the_audit_is_looked_through_page_by_page),
        cmocka_unit_test(the_data_of_one_user_becomes_tenant_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
