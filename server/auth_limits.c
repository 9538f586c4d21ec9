/* How much one caller may ask: requests a second of a user and of a tenant, refused tokens a minute
 * of an address. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/auth_private.h"

#define ADDRESS_MINUTE_MS 60000
/* How much more than a second's requests may come at once. */
#define BURST_S 2

int64_t bucket_wait_ms(struct bucket *b, int32_t rate, int64_t now_ms)
{
    if (rate <= 0) {
        return 0;
    }
    double full = (double)BURST_S * rate;
    b->tokens = b->last_ms ? b->tokens + (double)(now_ms - b->last_ms) * rate / 1000 : full;
    b->tokens = b->tokens < full ? b->tokens : full;
    b->last_ms = now_ms;
    return b->tokens >= 1 ? 0 : (int64_t)((1 - b->tokens) * 1000 / rate) + 1;
}

void bucket_take(struct bucket *b, int32_t rate, int64_t now_ms)
{
    if (rate > 0 && bucket_wait_ms(b, rate, now_ms) == 0) {
        b->tokens -= 1;
    }
}

int auth_take_request(struct auth *a, struct user_entry *u, struct error *err)
{
    int64_t now_ms = clock_mono_ms();
    int32_t user_rate = a->limits.user_requests_per_s;
    int32_t tenant_rate = a->limits.tenant_requests_per_s;
    int64_t wait_ms = bucket_wait_ms(&u->bucket, user_rate, now_ms);
    if (wait_ms) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "%s of %s may ask %d times a second; try again in %lld ms", u->name,
                         u->tenant->name, user_rate, (long long)wait_ms);
    }
    wait_ms = bucket_wait_ms(&u->tenant->bucket, tenant_rate, now_ms);
    if (wait_ms) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "the users of tenant %s may ask %d times a second together; try again in "
                         "%lld ms",
                         u->tenant->name, tenant_rate, (long long)wait_ms);
    }
    bucket_take(&u->bucket, user_rate, now_ms);
    bucket_take(&u->tenant->bucket, tenant_rate, now_ms);
    return 0;
}

/* The address's entry; the one that has been quiet longest makes room. */
static struct address *find_address(struct auth *a, const char *peer, int64_t now_ms)
{
    struct address *oldest = &a->addresses[0];
    for (int i = 0; i < AUTH_ADDRESSES; i++) {
        struct address *e = &a->addresses[i];
        if (strcmp(e->peer, peer) == 0) {
            return e;
        }
        oldest = e->since_ms < oldest->since_ms ? e : oldest;
    }
    *oldest = (struct address){.since_ms = now_ms};
    snprintf(oldest->peer, sizeof oldest->peer, "%s", peer);
    return oldest;
}

int auth_refuse(struct auth *a, const char *peer, const char *why, struct error *err)
{
    int32_t max = a->limits.auth_failures_per_min;
    int64_t now_ms = clock_mono_ms();
    if (max <= 0) {
        return error_set(err, ERR_UNAUTHENTICATED, "%s", why);
    }
    struct address *e = find_address(a, peer, now_ms);
    if (e->waits_until_ms > now_ms) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "more than %d tokens from here (%s) were refused within a minute; try "
                         "again in %lld s",
                         max, peer, (long long)(e->waits_until_ms - now_ms + 999) / 1000);
    }
    if (e->waits_until_ms || now_ms - e->since_ms >= ADDRESS_MINUTE_MS) {
        e->failures = 0;
        e->since_ms = now_ms;
        e->waits_until_ms = 0;
    }
    if (++e->failures >= max) {
        e->waits_until_ms = now_ms + ADDRESS_MINUTE_MS;
    }
    return error_set(err, ERR_UNAUTHENTICATED, "%s", why);
}
