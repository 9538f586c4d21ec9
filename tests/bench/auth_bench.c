/* What it costs to find out who calls: a good token among few and many, a bad one; and how long the
 * look for expired tokens takes when one is due. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "server/auth.h"

enum { CALLS = 300000, TOKENS_A_USER = 100 };

static const struct method reads = {.path = "/tandem.v1.Jobs/Get", .access = METHOD_VIEWER};

static void fill(struct auth *a, char (*secrets)[AUTH_SECRET_SIZE], int num)
{
    const struct tenant_row tenant = {.name = "red"};
    auth_put_tenant(a, &tenant);
    for (int i = 0; i < num; i++) {
        struct user_row user = {.tenant = "red", .role = "member"};
        struct token_row token = {.id = i + 1, .tenant = "red"};
        snprintf(user.name, sizeof user.name, "user%d", i / TOKENS_A_USER);
        snprintf(token.user, sizeof token.user, "%s", user.name);
        /* The last one has ended. */
        token.expires_us = i == num - 1 ? 1 : clock_wall_us() + (int64_t)1000000000000;
        auth_put_user(a, &user);
        if (auth_make_secret(secrets[i], token.sha256, NULL) != 0) {
            exit(1);
        }
        auth_put_token(a, &token);
    }
}

static double ns_a_call(struct auth *a, char (*secrets)[AUTH_SECRET_SIZE], int num, const char *bad)
{
    int64_t start_ns = clock_mono_ns();
    for (int64_t i = 0; i < CALLS; i++) {
        struct caller who;
        struct error err;
        auth_check(a, bad ? bad : secrets[i * 7919 % (num - 1)], false, "10.0.0.1", &reads, &who,
                   &err);
    }
    return (double)(clock_mono_ns() - start_ns) / CALLS;
}

static void measure(int num)
{
    LimitsConfig limits = LIMITS_CONFIG__INIT;
    limits.user_requests_per_s = limits.tenant_requests_per_s = limits.auth_failures_per_min = 0;
    const struct auth_options options = {.limits = &limits};
    struct auth *a;
    char(*secrets)[AUTH_SECRET_SIZE] = calloc((size_t)num, AUTH_SECRET_SIZE);
    if (!secrets || auth_new(&a, &options, NULL) != 0) {
        exit(1);
    }
    fill(a, secrets, num);
    double good = ns_a_call(a, secrets, num, NULL), bad = ns_a_call(a, secrets, num, "tnd_bad");
    int64_t start_ns = clock_mono_ns();
    auth_sweep(a);
    printf("%7d tokens: a call %.0f ns, a refused one %.0f ns; a look for expired ones %.2f ms\n",
           num, good, bad, (double)(clock_mono_ns() - start_ns) / 1e6);
    auth_free(a);
    free(secrets);
}

int main(void)
{
    measure(1000);
    measure(200000);
    return 0;
}
