/* Rights, the table of tokens, the limits of one caller and the counting of refusals, each alone.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/sha.h>

#include "base/clock.h"
#include "server/audit.h"
#include "server/auth_private.h"
#include "tests/deadline.h"

static const struct method reads = {.path = "/tandem.v1.Jobs/Get", .access = METHOD_VIEWER};
static const struct method changes = {.path = "/tandem.v1.Jobs/Cancel", .access = METHOD_MEMBER};
static const struct method admins = {.path = "/tandem.v1.Admin/SetTenant", .access = METHOD_ADMIN};
static const struct method attach = {.path = "/tandem.v1.Worker/Attach", .access = METHOD_WORKER};

struct fixture {
    struct auth *a;
    struct audit *audit;
    char secret[8][AUTH_SECRET_SIZE];
};

static struct token_row token_row(struct fixture *f, int64_t id, const char *tenant,
                                  const char *user)
{
    struct token_row row = {.id = id, .created_us = clock_wall_us()};
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.user, sizeof row.user, "%s", user);
    if (!*f->secret[id]) {
        assert_int_equal(auth_make_secret(f->secret[id], row.sha256, NULL), 0);
    }
    SHA256((const unsigned char *)f->secret[id], strlen(f->secret[id]), row.sha256);
    return row;
}

static void put_tenant(struct fixture *f, const char *name, bool disabled)
{
    struct tenant_row row = {.disabled = disabled};
    snprintf(row.name, sizeof row.name, "%s", name);
    auth_put_tenant(f->a, &row);
}

static void put_user(struct fixture *f, const char *tenant, const char *name, const char *role,
                     bool disabled)
{
    struct user_row row = {.disabled = disabled};
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.role, sizeof row.role, "%s", role);
    auth_put_user(f->a, &row);
}

static void start(struct fixture *f, const LimitsConfig *limits)
{
    const struct auth_options o = {.limits = limits, .audit = f->audit};
    assert_int_equal(auth_new(&f->a, &o, NULL), 0);
    put_tenant(f, "red", false);
    put_user(f, "red", "ann", "member", false);
    struct token_row row = token_row(f, 1, "red", "ann");
    auth_put_token(f->a, &row);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(audit_new(&f->audit), 0);
    LimitsConfig limits = LIMITS_CONFIG__INIT;
    limits.auth_failures_per_min = 0;
    start(f, &limits);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    auth_free(f->a);
    audit_free(f->audit);
    free(f);
    return 0;
}

static enum error_code check(struct fixture *f, const char *bearer, const struct method *method,
                             struct caller *who, struct error *err)
{
    struct caller mine;
    struct error why = {0};
    int rc =
        auth_check(f->a, bearer, false, "10.0.0.1", method, who ? who : &mine, err ? err : &why);
    return rc == 0 ? ERR_OK : (err ? err : &why)->code;
}

/* ---- rights ---- */

/* A job of another tenant and one that never was are refused in the same words. */
static void only_owner_and_admins_change_a_job(void **state)
{
    (void)state;
    struct job_row job = {.id = 7, .tenant = "red", .user = "ann"};
    const struct {
        struct caller who;
        enum error_code want;
    } cases[] = {
        {{.tenant = "red", .user = "ann", .role = "member"}, ERR_OK},
        {{.tenant = "red", .user = "bob", .role = "member"}, ERR_PERMISSION_DENIED},
        {{.tenant = "red", .user = "ann", .role = "viewer"}, ERR_PERMISSION_DENIED},
        {{.tenant = "red", .user = "bob", .role = "tenant-admin"}, ERR_OK},
        {{.tenant = "blue", .user = "ann", .role = "member"}, ERR_NOT_FOUND},
        {{.tenant = "blue", .user = "ann", .role = "tenant-admin"}, ERR_NOT_FOUND},
        {{.tenant = "blue", .user = "eve", .role = "admin"}, ERR_OK},
        {{.tenant = "red", .user = "ann", .role = "worker"}, ERR_PERMISSION_DENIED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        rights_change_job(&cases[i].who, &job, &err);
        assert_int_equal(err.code, cases[i].want);
    }
}

static void each_role_has_the_rights_of_those_below(void **state)
{
    (void)state;
    const enum method_access accesses[] = {METHOD_VIEWER, METHOD_MEMBER, METHOD_TENANT_ADMIN,
                                           METHOD_ADMIN};
    for (int role = ROLE_VIEWER; role <= ROLE_ADMIN; role++) {
        assert_int_equal(rights_role(rights_role_name((enum role)role)), role);
        assert_int_equal(rights_needed(accesses[role - 1]), role);
    }
    assert_int_equal(rights_role("root"), ROLE_UNKNOWN);
    assert_int_equal(rights_role(""), ROLE_UNKNOWN);
    assert_int_equal(rights_role(NULL), ROLE_UNKNOWN);
}

static void names_are_short_and_plain(void **state)
{
    (void)state;
    const char *const good[] = {"a", "ann@corp.example", "Team-7", "x_y+z"};
    const char *const bad[] = {"", "-a", ".a", "a b", "a/b", "a\n", "\xC3\xA9"};
    char longest[66];
    memset(longest, 'x', sizeof longest);
    longest[65] = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(rights_check_name("name", good[i], NULL), 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rights_check_name("name", bad[i], NULL), -1);
    }
    assert_int_equal(rights_check_name("name", longest, NULL), -1);
    longest[64] = 0;
    assert_int_equal(rights_check_name("name", longest, NULL), 0);
}

/* ---- the table ---- */

static void a_token_says_who_calls(void **state)
{
    struct fixture *f = *state;
    struct caller who;
    assert_int_equal(check(f, f->secret[1], &reads, &who, NULL), ERR_OK);
    assert_string_equal(who.user, "ann");
    assert_string_equal(who.tenant, "red");
    assert_string_equal(who.role, "member");
    assert_int_equal(who.token_id, 1);
    assert_int_equal(strncmp(f->secret[1], "tnd_", 4), 0);
    assert_int_equal(strlen(f->secret[1]), 68);
}

static void what_is_no_token_of_the_table_is_refused(void **state)
{
    struct fixture *f = *state;
    char near[AUTH_SECRET_SIZE];
    memcpy(near, f->secret[1], sizeof near);
    near[40] = near[40] == '0' ? '1' : '0';
    const char *const bad[] = {NULL, "", "tnd_", near, f->secret[1] + 4};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(check(f, bad[i], &reads, NULL, NULL), ERR_UNAUTHENTICATED);
    }
    assert_int_equal(check(f, f->secret[1], &attach, NULL, NULL), ERR_UNAUTHENTICATED);
}

static void an_attempts_token_opens_its_stream_alone(void **state)
{
    struct fixture *f = *state;
    char token[AUTH_TOKEN_SIZE];
    uint8_t sha256[HASH_BYTES];
    struct caller who;
    assert_int_equal(auth_make_token(token, sha256, NULL), 0);
    auth_add_attempt(f->a, 12, 3, sha256);
    assert_int_equal(check(f, token, &attach, &who, NULL), ERR_OK);
    assert_int_equal(who.job_id, 12);
    assert_int_equal(who.attempt, 3);
    assert_int_equal(check(f, token, &reads, NULL, NULL), ERR_UNAUTHENTICATED);
}

static void a_role_opens_what_it_is_for(void **state)
{
    struct fixture *f = *state;
    struct caller who;
    assert_int_equal(check(f, f->secret[1], &admins, NULL, NULL), ERR_PERMISSION_DENIED);
    assert_int_equal(check(f, f->secret[1], &changes, &who, NULL), ERR_OK);
    put_user(f, "red", "ann", "viewer", false);
    assert_int_equal(check(f, f->secret[1], &changes, NULL, NULL), ERR_PERMISSION_DENIED);
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_MEMBER, NULL), -1);
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_VIEWER, NULL), 0);
}

/* A stream that was opened with the sight of all tenants can't go on without it. */
static void an_admin_that_is_none_any_more_keeps_no_stream(void **state)
{
    struct fixture *f = *state;
    struct caller who;
    struct error err = {0};
    put_user(f, "red", "ann", "admin", false);
    assert_int_equal(check(f, f->secret[1], &reads, &who, NULL), ERR_OK);
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_VIEWER, NULL), 0);
    put_user(f, "red", "ann", "tenant-admin", false);
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_VIEWER, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
}

static void the_disabled_are_refused_until_they_are_enabled(void **state)
{
    struct fixture *f = *state;
    struct caller who;
    assert_int_equal(check(f, f->secret[1], &reads, &who, NULL), ERR_OK);
    put_user(f, "red", "ann", "member", true);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_VIEWER, NULL), -1);
    put_user(f, "red", "ann", "member", false);
    put_tenant(f, "red", true);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_UNAUTHENTICATED);
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_VIEWER, NULL), -1);
    put_tenant(f, "red", false);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_OK);
}

static void a_revoked_token_is_refused_and_stays_revoked(void **state)
{
    struct fixture *f = *state;
    struct caller who;
    struct error err = {0};
    assert_int_equal(check(f, f->secret[1], &reads, &who, NULL), ERR_OK);
    struct token_row row = token_row(f, 1, "red", "ann");
    row.revoked_us = 5;
    auth_put_token(f->a, &row);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, &err), ERR_UNAUTHENTICATED);
    assert_string_equal(err.text, "the token was revoked");
    assert_int_equal(auth_still_allowed(f->a, &who, METHOD_VIEWER, NULL), -1);
    row.revoked_us = 0;
    auth_put_token(f->a, &row);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_UNAUTHENTICATED);
}

/* [34] Once past its end a token stays expired, whatever its row or the clock say later; and it is
 * given to be written down until that was done. */
static void an_expired_token_stays_expired(void **state)
{
    struct fixture *f = *state;
    struct auth_change change[4];
    struct error err = {0};
    struct token_row row = token_row(f, 2, "red", "ann");
    row.expires_us = clock_wall_us() + 3600 * (int64_t)1000000;
    auth_put_token(f->a, &row);
    assert_false(auth_sweep(f->a));
    assert_int_equal(auth_changes(f->a, change, 4), 0);
    assert_int_equal(check(f, f->secret[2], &reads, NULL, NULL), ERR_OK);
    row.expires_us = clock_wall_us() - 1;
    auth_put_token(f->a, &row);
    assert_true(auth_sweep(f->a));
    assert_false(auth_sweep(f->a));
    row.expires_us = clock_wall_us() + 3600 * (int64_t)1000000;
    auth_put_token(f->a, &row);
    assert_int_equal(check(f, f->secret[2], &reads, NULL, &err), ERR_UNAUTHENTICATED);
    assert_string_equal(err.text, "the token has expired");
}

/* A call that shows an expired token before the next look at the clock doesn't hide from it that
 * there are open streams to end. */
static void an_expiry_that_a_call_noticed_is_told_all_the_same(void **state)
{
    struct fixture *f = *state;
    struct token_row row = token_row(f, 2, "red", "ann");
    row.expires_us = 1;
    auth_put_token(f->a, &row);
    assert_int_equal(check(f, f->secret[2], &reads, NULL, NULL), ERR_UNAUTHENTICATED);
    assert_true(auth_sweep(f->a));
    assert_false(auth_sweep(f->a));
}

static void what_is_to_be_written_down_comes_once(void **state)
{
    struct fixture *f = *state;
    struct auth_change change[4];
    struct token_row row = token_row(f, 2, "red", "ann");
    row.expires_us = 1;
    auth_put_token(f->a, &row);
    assert_true(auth_sweep(f->a));
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_OK);
    assert_int_equal(auth_changes(f->a, change, 4), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(change[i].expired, change[i].token_id == 2);
        assert_int_equal(change[i].last_used_us % 60000000, 0);
    }
    assert_false(auth_sweep(f->a));
    assert_int_equal(auth_changes(f->a, change, 4), 0);
}

/* However many tokens end, only so many of them are remembered. */
static void ended_tokens_are_forgotten_in_their_order(void **state)
{
    struct fixture *f = *state;
    struct token_row row = token_row(f, 2, "red", "ann");
    row.revoked_us = 1;
    auth_put_token(f->a, &row);
    for (int64_t i = 0; i < AUTH_ENDED_MAX + 100; i++) {
        struct token_row other = row;
        other.id = 100 + i;
        memcpy(other.sha256, &i, sizeof i);
        auth_put_token(f->a, &other);
    }
    struct error err = {0};
    assert_int_equal(check(f, f->secret[2], &reads, NULL, &err), ERR_UNAUTHENTICATED);
    assert_string_equal(err.text, "the token is not known here");
    assert_int_equal(auth_num_tokens(f->a), AUTH_ENDED_MAX + 1);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_OK);
}

/* ---- limits ---- */

/* A burst of two seconds' worth, then the rate; the wait that is told is enough. */
static void a_bucket_lets_the_rate_through(void **state)
{
    (void)state;
    struct bucket b = {0};
    int64_t now = 1000;
    int taken = 0;
    while (bucket_wait_ms(&b, 10, now) == 0) {
        bucket_take(&b, 10, now);
        taken++;
    }
    assert_int_equal(taken, 20);
    int64_t wait = bucket_wait_ms(&b, 10, now);
    assert_in_range(wait, 1, 101);
    assert_int_equal(bucket_wait_ms(&b, 10, now + wait), 0);
    struct bucket unlimited = {0};
    assert_int_equal(bucket_wait_ms(&unlimited, 0, now), 0);
    taken = 0;
    for (now += wait; now < 101000; now += 7) {
        if (bucket_wait_ms(&b, 10, now) == 0) {
            bucket_take(&b, 10, now);
            taken++;
        }
    }
    assert_in_range(taken, 990, 1021);
}

static void refused_tokens_of_an_address_are_limited(void **state)
{
    struct fixture *f = *state;
    auth_free(f->a);
    LimitsConfig limits = LIMITS_CONFIG__INIT;
    limits.auth_failures_per_min = 3;
    start(f, &limits);
    struct error err = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(check(f, "no", &reads, NULL, NULL), ERR_UNAUTHENTICATED);
    }
    assert_int_equal(check(f, "no", &reads, NULL, &err), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "try again in "));
    struct caller who;
    assert_int_equal(auth_check(f->a, "no", false, "10.0.0.2", &reads, &who, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    assert_int_equal(check(f, f->secret[1], &reads, NULL, NULL), ERR_OK);
}

/* ---- refusals ---- */

static void a_refusal_that_goes_on_is_one_row_with_its_count(void **state)
{
    struct fixture *f = *state;
    struct audit_count counts[AUDIT_REFUSALS_MAX + 1];
    for (int i = 0; i < 5; i++) {
        check(f, "no", &reads, NULL, NULL);
        check(f, f->secret[1], &admins, NULL, NULL);
    }
    assert_int_equal(audit_counts(f->audit, counts), 2);
    for (int i = 0; i < 2; i++) {
        bool known = *counts[i].user != 0;
        assert_int_equal(counts[i].num, 5);
        assert_string_equal(counts[i].peer, "10.0.0.1");
        assert_string_equal(counts[i].method, known ? "Admin/SetTenant" : "");
        assert_string_equal(counts[i].result, known ? "denied" : "denied: no good token");
        counts[i].written_id = 70 + i;
    }
    assert_int_equal(audit_counts(f->audit, counts), 0);
    struct audit_count kept[2] = {counts[0], counts[1]};
    audit_counts_saved(f->audit, kept, 2);
    check(f, "no", &reads, NULL, NULL);
    assert_int_equal(audit_counts(f->audit, counts), 1);
    assert_int_equal(counts[0].num, 6);
    assert_true(counts[0].row_id >= 70);
}

/* From however many addresses: the rows of a minute are bounded, and nothing is lost from the sum.
 */
static void rows_of_refusals_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct audit_count counts[AUDIT_REFUSALS_MAX + 1];
    for (int i = 0; i < 10000; i++) {
        char peer[32];
        snprintf(peer, sizeof peer, "10.0.%d.%d", i / 256, i % 256);
        audit_refusal(f->audit, NULL, "", peer, "denied: no good token");
    }
    size_t num = audit_counts(f->audit, counts);
    assert_int_equal(num, AUDIT_REFUSALS_MAX + 1);
    int64_t sum = 0;
    for (size_t i = 0; i < num; i++) {
        sum += counts[i].num;
    }
    assert_int_equal(sum, 10000);
    assert_string_equal(counts[num - 1].peer, "");
}

/* ---- threads ---- */

struct race {
    struct fixture *f;
    atomic_bool stop;
    atomic_int num_ok;
};

static void *ask_again_and_again(void *arg)
{
    struct race *r = arg;
    while (!atomic_load(&r->stop)) {
        struct caller who;
        if (check(r->f, r->f->secret[1], &reads, &who, NULL) == ERR_OK) {
            auth_still_allowed(r->f->a, &who, METHOD_VIEWER, NULL);
            atomic_fetch_add(&r->num_ok, 1);
        }
        check(r->f, r->f->secret[2], &reads, NULL, NULL);
    }
    return NULL;
}

/* Threads that ask while the owner changes: nobody sees half a change. */
static void the_table_changes_under_those_who_ask(void **state)
{
    struct race r = {.f = *state};
    auth_free(r.f->a);
    LimitsConfig limits = LIMITS_CONFIG__INIT;
    limits.user_requests_per_s = limits.tenant_requests_per_s = limits.auth_failures_per_min = 0;
    start(r.f, &limits);
    struct token_row row = token_row(r.f, 2, "red", "ann");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_again_and_again, &r), 0);
    }
    struct auth_change changes_[8];
    deadline_begin(2 * DEADLINE_S, "a hundred answers while the table changes");
    for (int i = 0; i < 300 || atomic_load(&r.num_ok) < 100; i++) {
        put_user(r.f, "red", "ann", i % 2 ? "member" : "viewer", false);
        put_tenant(r.f, "red", i % 3 == 1);
        row.id = 2 + i % 4 * 1000;
        row.revoked_us = i > 150;
        auth_put_token(r.f->a, &row);
        auth_sweep(r.f->a);
        auth_changes(r.f->a, changes_, 8);
        put_tenant(r.f, "red", false);
    }
    atomic_store(&r.stop, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    deadline_end();
    assert_int_equal(check(r.f, r.f->secret[2], &reads, NULL, NULL), ERR_UNAUTHENTICATED);
    assert_int_equal(check(r.f, r.f->secret[1], &reads, NULL, NULL), ERR_OK);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(only_owner_and_admins_change_a_job),
        T(each_role_has_the_rights_of_those_below),
        T(names_are_short_and_plain),
        T(a_token_says_who_calls),
        T(what_is_no_token_of_the_table_is_refused),
        T(an_attempts_token_opens_its_stream_alone),
        T(a_role_opens_what_it_is_for),
        T(an_admin_that_is_none_any_more_keeps_no_stream),
        T(the_disabled_are_refused_until_they_are_enabled),
        T(a_revoked_token_is_refused_and_stays_revoked),
        T(an_expired_token_stays_expired),
        T(an_expiry_that_a_call_noticed_is_told_all_the_same),
        T(what_is_to_be_written_down_comes_once),
        T(ended_tokens_are_forgotten_in_their_order),
        T(a_bucket_lets_the_rate_through),
        T(refused_tokens_of_an_address_are_limited),
        T(a_refusal_that_goes_on_is_one_row_with_its_count),
        T(rows_of_refusals_are_bounded),
        T(the_table_changes_under_those_who_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
