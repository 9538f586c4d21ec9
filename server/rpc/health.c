/* grpc.health.v1: is the server, or one of its services, serving? Check answers at once; Watch
 * tells each change. */
#include <stdlib.h>
#include <string.h>
#include <tandem/v1/health.pb-c.h>

#include "server/rpc/descriptors.h"
#include "server/rpc/wire.h"

typedef Grpc__Health__V1__HealthCheckRequest HealthRequest;
typedef Grpc__Health__V1__HealthCheckResponse HealthResponse;
#define STATUS(word) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##word

struct watcher {
    struct watcher *next, **prev;
    struct call *call; /* owned reference */
};

struct health {
    pthread_mutex_t lock;
    bool serving;             /* guarded by lock */
    struct watcher *watchers; /* guarded by lock */
};

struct health *health_new(void)
{
    struct health *h = calloc(1, sizeof *h);
    if (h) {
        pthread_mutex_init(&h->lock, NULL);
    }
    return h;
}

void health_free(struct health *h)
{
    if (h) {
        ASSERT(!h->watchers);
        pthread_mutex_destroy(&h->lock);
        free(h);
    }
}

static HealthResponse response(bool serving)
{
    HealthResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    r.has_status = 1;
    r.status = serving ? STATUS(SERVING) : STATUS(NOT_SERVING);
    return r;
}

void health_set(struct health *h, bool serving)
{
    HealthResponse r = response(serving);
    pthread_mutex_lock(&h->lock);
    bool changed = h->serving != serving;
    h->serving = serving;
    for (struct watcher *w = changed ? h->watchers : NULL; w; w = w->next) {
        call_send(w->call, &r.base);
    }
    pthread_mutex_unlock(&h->lock);
}

static bool is_known(struct server *s, const HealthRequest *q)
{
    const char *name = q->service ? q->service : "";
    return !name[0] || descriptors_has(server_descriptors(s), name, DESCRIPTOR_SERVICE);
}

static void on_check(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    const HealthRequest *q = (const HealthRequest *)message;
    if (!is_known(ctx, q)) {
        call_fail(c, ERR_NOT_FOUND, "unknown service %s", q->service);
        return;
    }
    struct health *h = server_health(ctx);
    pthread_mutex_lock(&h->lock);
    HealthResponse r = response(h->serving);
    pthread_mutex_unlock(&h->lock);
    call_reply(c, &r.base);
}

static void on_watch(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    if (!is_known(ctx, (const HealthRequest *)message)) {
        /* The protocol's way: say so and stay open, the service may appear. */
        HealthResponse r = response(false);
        r.status = STATUS(SERVICE_UNKNOWN);
        call_send(c, &r.base);
        return;
    }
    struct health *h = server_health(ctx);
    struct watcher *w = calloc(1, sizeof *w);
    if (!w) {
        call_fail(c, ERR_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    w->call = call_ref(c);
    call_set_data(c, w, NULL);
    pthread_mutex_lock(&h->lock);
    w->next = h->watchers;
    w->prev = &h->watchers;
    if (w->next) {
        w->next->prev = &w->next;
    }
    h->watchers = w;
    HealthResponse r = response(h->serving);
    call_send(c, &r.base);
    pthread_mutex_unlock(&h->lock);
}

static void on_watch_closed(void *ctx, struct call *c)
{
    struct health *h = server_health(ctx);
    struct watcher *w = call_data(c);
    if (!w) {
        return;
    }
    pthread_mutex_lock(&h->lock);
    *w->prev = w->next;
    if (w->next) {
        w->next->prev = w->prev;
    }
    pthread_mutex_unlock(&h->lock);
    call_unref(w->call);
    free(w);
}

const struct method health_methods[] = {
    {
        .path = "/grpc.health.v1.Health/Check",
        .kind = METHOD_UNARY,
        .access = METHOD_PUBLIC,
        .request = &grpc__health__v1__health_check_request__descriptor,
        .on_message = on_check,
    },
    {
        .path = "/grpc.health.v1.Health/Watch",
        .kind = METHOD_SERVER_STREAM,
        .access = METHOD_PUBLIC,
        .request = &grpc__health__v1__health_check_request__descriptor,
        .on_message = on_watch,
        .on_closed = on_watch_closed,
    },
    {0},
};
