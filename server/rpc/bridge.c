#include "server/rpc/bridge.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/rpc/relay.h"

enum {
    MAX_HANDSHAKES = 512,
    LINGER_MS = 2000,     /* for the peer to close, or to read what was said last */
    LAST_WORDS_MS = 1000, /* at the end of the bridge */
    EVENTS = 64,
    TICK_MS = 100,
    TELL_EVERY_MS = 60000,
    CORE_BUFFER_BYTES = 65536,
};

struct conn;
struct side {
    struct conn *conn;
    bool is_core;
    uint32_t waits_for; /* EPOLL bits; UINT32_MAX: not in the set */
};

struct conn {
    struct conn *next, *prev; /* in one of the bridge's lists */
    struct list *in;
    struct relay relay;
    struct side net, core;
    struct peer_address from;
    int number; /* core's end, as peers knows it; -1 = none */
    int64_t until_ms;
};

/* In the order in which their time runs out. */
struct list {
    struct conn *first, *last;
    int num;
};

struct bridge {
    struct bridge_options options;
    pthread_t thread;
    int epoll, wake; /* owned */
    uint8_t scratch[RELAY_SCRATCH];
    struct list shaking, open, closing, dead; /* of the thread */
    int64_t told_ms;                          /* of the thread */
    int refusals;                             /* since then; of the thread */
    pthread_mutex_t lock;                     /* guards what follows */
    struct conn *added;                       /* not seen by the thread yet; by next */
    bool opening, stop;
};

/* ---- lists --------------------------------------------------------------------------------- */

static void list_add(struct list *l, struct conn *c)
{
    c->in = l;
    c->next = NULL;
    c->prev = l->last;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
    l->num++;
}

static void list_take(struct conn *c)
{
    struct list *l = c->in;
    *(c->prev ? &c->prev->next : &l->first) = c->next;
    *(c->next ? &c->next->prev : &l->last) = c->prev;
    l->num--;
    c->in = NULL;
}

/* ---- one connection ------------------------------------------------------------------------ */

/* One line a minute: an operator should learn why somebody can't get in, and nobody can fill the
 * log. */
static void tell_refusal(struct bridge *b, const struct conn *c)
{
    int64_t now = clock_mono_ms();
    char text[PEER_TEXT_SIZE];
    b->refusals++;
    if (b->told_ms && now - b->told_ms < TELL_EVERY_MS) {
        return;
    }
    peer_address_text(&c->from, text);
    log_info("no TLS with %s: %s (%d such since the last line like this)", text, c->relay.why,
             b->refusals);
    b->told_ms = now;
    b->refusals = 0;
}

/* Before the descriptor is closed: epoll forgets a socket that is closed only when nobody has it
 * any more, and a child between its fork and its exec still has it. It would tell of a side that is
 * freed. */
static void unwatch(struct bridge *b, struct side *s, int fd)
{
    if (s->waits_for != UINT32_MAX) {
        ASSERT(epoll_ctl(b->epoll, EPOLL_CTL_DEL, fd, NULL) == 0);
        s->waits_for = UINT32_MAX;
    }
}

static void close_spent(struct bridge *b, struct conn *c)
{
    if (c->relay.spent >= 0) {
        unwatch(b, &c->core, c->relay.spent);
        close(c->relay.spent);
        c->relay.spent = -1;
    }
}

/* Freed only when the batch of events is through: a later one may point to it. */
static void bury(struct bridge *b, struct conn *c)
{
    if (c->relay.why) {
        tell_refusal(b, c);
    }
    close_spent(b, c);
    unwatch(b, &c->net, c->relay.net);
    unwatch(b, &c->core, c->relay.core);
    relay_close(&c->relay);
    if (c->number >= 0) {
        peers_unbind(b->options.peers, c->number);
    }
    peers_leave(b->options.peers, &c->from);
    list_take(c);
    list_add(&b->dead, c);
}

static void free_dead(struct bridge *b)
{
    while (b->dead.first) {
        struct conn *c = b->dead.first;
        list_take(c);
        free(c);
    }
}

static void watch_side(struct bridge *b, struct side *s, int fd, uint32_t events)
{
    if (s->waits_for == events) {
        return;
    }
    struct epoll_event e = {.events = events, .data.ptr = s};
    int op = s->waits_for == UINT32_MAX ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    ASSERT(epoll_ctl(b->epoll, op, fd, &e) == 0);
    s->waits_for = events;
}

static void close_by(struct bridge *b, struct conn *c, int64_t ms)
{
    if (c->in != &b->closing) {
        list_take(c);
        list_add(&b->closing, c);
        c->until_ms = clock_mono_ms() + ms;
    }
}

/* A frame of its own, by which tests/tsan.supp knows it, like take_connection in acceptor.c. */
__attribute__((noinline)) static bool make_pair(int pair[2])
{
    int bytes = CORE_BUFFER_BYTES;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return false;
    }
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return true;
}

/* The peer is who it should be: core learns of it. */
static bool open_core(struct bridge *b, struct conn *c)
{
    int pair[2];
    pthread_mutex_lock(&b->lock);
    bool ok = b->opening && make_pair(pair);
    if (ok) {
        relay_open(&c->relay, pair[0]);
        c->number = peers_bind(b->options.peers, pair[1], &c->from);
        ok = c->number >= 0;
    }
    if (ok) {
        b->options.on_open(b->options.ctx, c->number);
        list_take(c);
        list_add(&b->open, c);
    } else {
        c->relay.why = b->opening ? "no descriptors are left" : "the server stops";
    }
    pthread_mutex_unlock(&b->lock);
    return ok;
}

static void run(struct bridge *b, struct conn *c, bool core_hup)
{
    struct relay *r = &c->relay;
    relay_step(r, core_hup, b->scratch);
    if (r->state == RELAY_READY) {
        if (!open_core(b, c)) {
            bury(b, c);
            return;
        }
        relay_step(r, false, b->scratch); /* what came with the last flight */
    }
    close_spent(b, c);
    if (r->state == RELAY_OVER) {
        bury(b, c);
        return;
    }
    if (r->core_hup) {
        /* It would be reported again and again; pump_out reads it to its end. */
        unwatch(b, &c->core, r->core);
    }
    if (r->core_hup || r->state == RELAY_LINGER) {
        close_by(b, c, LINGER_MS);
    }
    watch_side(b, &c->net, r->net, relay_net_events(r));
    if (r->core >= 0 && !r->core_hup) {
        watch_side(b, &c->core, r->core, relay_core_events(r));
    }
}

static void on_event(struct bridge *b, const struct epoll_event *e)
{
    struct side *s = e->data.ptr;
    struct conn *c = s->conn;
    bool gone = (e->events & (EPOLLERR | EPOLLHUP)) != 0;
    if (c->relay.state == RELAY_OVER) {
        return; /* earlier in this batch */
    }
    if (gone && !s->is_core && !(e->events & EPOLLIN)) {
        c->relay.why = c->relay.state == RELAY_HANDSHAKE ? "the peer went away" : NULL;
        bury(b, c);
        return;
    }
    run(b, c, gone && s->is_core);
    if (gone && !s->is_core && c->relay.state != RELAY_OVER) {
        bury(b, c); /* what had come has been read, as far as core takes it */
    }
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void take_added(struct bridge *b)
{
    eventfd_t n;
    eventfd_read(b->wake, &n);
    pthread_mutex_lock(&b->lock);
    struct conn *c = b->added;
    b->added = NULL;
    pthread_mutex_unlock(&b->lock);
    while (c) {
        struct conn *next = c->next;
        if (b->shaking.num >= MAX_HANDSHAKES) {
            b->shaking.first->relay.why = "too many handshakes at once";
            bury(b, b->shaking.first);
        }
        c->until_ms = clock_mono_ms() + b->options.handshake_ms;
        list_add(&b->shaking, c);
        run(b, c, false);
        c = next;
    }
}

static void drop_late(struct bridge *b, struct list *l, const char *why)
{
    int64_t now = clock_mono_ms();
    while (l->first && l->first->until_ms <= now) {
        l->first->relay.why = why;
        bury(b, l->first);
    }
}

static bool stops(struct bridge *b)
{
    pthread_mutex_lock(&b->lock);
    bool stop = b->stop;
    pthread_mutex_unlock(&b->lock);
    return stop;
}

static void *bridge_main(void *arg)
{
    struct bridge *b = arg;
    struct epoll_event events[EVENTS];
    int64_t end_ms = 0;
    for (;;) {
        if (stops(b)) {
            end_ms = end_ms ? end_ms : clock_mono_ms() + LAST_WORDS_MS;
            while (b->shaking.first) {
                bury(b, b->shaking.first);
            }
            if ((!b->open.first && !b->closing.first) || clock_mono_ms() > end_ms) {
                return NULL;
            }
        }
        free_dead(b);
        bool timed = b->shaking.first || b->closing.first || end_ms;
        int n = epoll_wait(b->epoll, events, EVENTS, timed ? TICK_MS : -1);
        for (int i = 0; i < n; i++) {
            if (!events[i].data.ptr) {
                take_added(b);
            } else {
                on_event(b, &events[i]);
            }
        }
        drop_late(b, &b->shaking, "the handshake took too long");
        drop_late(b, &b->closing, NULL);
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

int bridge_new(struct bridge **out, const struct bridge_options *options, struct error *err)
{
    struct bridge *b = calloc(1, sizeof *b);
    if (!b) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    b->options = *options;
    if (!b->options.handshake_ms) {
        b->options.handshake_ms = BRIDGE_HANDSHAKE_MS;
    }
    b->opening = true;
    pthread_mutex_init(&b->lock, NULL);
    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    b->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN};
    int failed = b->epoll < 0 || b->wake < 0 || epoll_ctl(b->epoll, EPOLL_CTL_ADD, b->wake, &e)
                     ? errno
                     : pthread_create(&b->thread, NULL, bridge_main, b);
    if (failed) {
        close(b->epoll);
        close(b->wake);
        pthread_mutex_destroy(&b->lock);
        free(b);
        return error_errno(err, failed, "start the TLS thread");
    }
    *out = b;
    return 0;
}

void bridge_add(struct bridge *b, int fd, const struct peer_address *from)
{
    struct conn *c = calloc(1, sizeof *c);
    SSL *ssl = tls_session(b->options.tls);
    if (!c || !ssl) {
        free(c);
        SSL_free(ssl);
        close(fd);
        peers_leave(b->options.peers, from);
        return;
    }
    relay_init(&c->relay, fd, ssl);
    c->net = (struct side){.conn = c, .waits_for = UINT32_MAX};
    c->core = (struct side){.conn = c, .is_core = true, .waits_for = UINT32_MAX};
    c->from = *from;
    c->number = -1;
    pthread_mutex_lock(&b->lock);
    c->next = b->added;
    b->added = c;
    pthread_mutex_unlock(&b->lock);
    eventfd_write(b->wake, 1);
}

void bridge_stop_opening(struct bridge *b)
{
    pthread_mutex_lock(&b->lock);
    b->opening = false;
    pthread_mutex_unlock(&b->lock);
}

void bridge_free(struct bridge *b)
{
    if (!b) {
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    b->opening = false;
    pthread_mutex_unlock(&b->lock);
    eventfd_write(b->wake, 1);
    pthread_join(b->thread, NULL);
    take_added(b);
    struct list *all[] = {&b->shaking, &b->open, &b->closing};
    for (int i = 0; i < 3; i++) {
        while (all[i]->first) {
            bury(b, all[i]->first);
        }
    }
    free_dead(b);
    close(b->epoll);
    close(b->wake);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
