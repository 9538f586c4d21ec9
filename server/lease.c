#include "server/lease.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "proto/names.h"

struct holder {
    struct call *call; /* a reference */
    struct holder *next;
};

struct lease {
    int64_t ttl_ms;
    pthread_mutex_t lock;
    struct holder *holders; /* guarded by lock */
};

int lease_new(struct lease **out, int64_t ttl_ms)
{
    struct lease *l = calloc(1, sizeof *l);
    if (!l) {
        return -1;
    }
    l->ttl_ms = ttl_ms > 0 ? ttl_ms : LEASE_TTL_MS;
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return 0;
}

void lease_free(struct lease *l)
{
    if (!l) {
        return;
    }
    while (l->holders) {
        struct holder *h = l->holders;
        l->holders = h->next;
        call_unref(h->call);
        free(h);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void send_lease(const struct lease *l, struct call *c)
{
    Lease lease = LEASE__INIT;
    lease.has_ttl_ms = 1;
    lease.ttl_ms = l->ttl_ms;
    WorkerDown down = WORKER_DOWN__INIT;
    down.has_attempt = 1;
    down.attempt = call_caller(c)->attempt;
    down.body_case = WORKER_DOWN__BODY_LEASE;
    down.lease = &lease;
    call_send(c, &down.base);
}

void lease_add(struct lease *l, struct call *c)
{
    send_lease(l, c);
    struct holder *h = malloc(sizeof *h);
    ASSERT(h);
    h->call = call_ref(c);
    pthread_mutex_lock(&l->lock);
    h->next = l->holders;
    l->holders = h;
    pthread_mutex_unlock(&l->lock);
}

void lease_remove(struct lease *l, struct call *c)
{
    struct holder *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (struct holder **p = &l->holders; *p; p = &(*p)->next) {
        if ((*p)->call == c) {
            found = *p;
            *p = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&l->lock);
    if (found) {
        call_unref(found->call);
        free(found);
    }
}

void lease_renew(struct lease *l)
{
    pthread_mutex_lock(&l->lock);
    for (struct holder *h = l->holders; h; h = h->next) {
        send_lease(l, h->call);
    }
    pthread_mutex_unlock(&l->lock);
}

int64_t lease_ttl_ms(const struct lease *l)
{
    return l->ttl_ms;
}

int64_t lease_renew_ms(const struct lease *l)
{
    return l->ttl_ms / 4 < LEASE_RENEW_MS ? l->ttl_ms / 4 : LEASE_RENEW_MS;
}
