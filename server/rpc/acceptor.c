#include "server/rpc/acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    MAX_LISTENERS = 10,
    HEADROOM_MAX = 256, /* descriptors that connections leave to others; at most an eighth */
    PAUSE_MS = 100,     /* after running out of them */
    WARN_EVERY_MS = 60000,
};

struct acceptor {
    pthread_t thread;
    struct pollfd polled[MAX_LISTENERS + 1]; /* the last one: wake */
    struct listener *listeners;              /* borrowed; of the thread */
    int num_listeners;
    int wake_fd; /* owned */
    atomic_bool stop;
    atomic_uint reopen; /* a bit a listener */
    acceptor_take *on_connection;
    void *ctx;
    int64_t warned_ms;
};

/* Descriptors are handed out from the lowest: a high number means that few are left. */
static bool in_headroom(int fd)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY) {
        return false;
    }
    rlim_t headroom = r.rlim_cur / 8 < HEADROOM_MAX ? r.rlim_cur / 8 : HEADROOM_MAX;
    return (rlim_t)fd >= r.rlim_cur - headroom;
}

static void warn_full(struct acceptor *a)
{
    int64_t now = clock_mono_ms();
    if (!a->warned_ms || now - a->warned_ms > WARN_EVERY_MS) {
        a->warned_ms = now;
        log_warn("connections are turned away: the limit of open files is near");
    }
}

/* A frame of its own, by which tests/tsan.supp knows it: gRPC closes the descriptor where TSan
 * isn't looking, and the next user of its number would seem to race with this accept. */
__attribute__((noinline)) static int take_connection(int listener, struct sockaddr_storage *from)
{
    socklen_t len = sizeof *from;
    from->ss_family = AF_UNSPEC;
    return accept4(listener, (struct sockaddr *)from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Takes what waits there. False: out of descriptors, come again later. */
static bool accept_all(struct acceptor *a, int i)
{
    for (;;) {
        struct sockaddr_storage from;
        int fd = take_connection(a->polled[i].fd, &from);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (fd < 0) {
            return errno == EAGAIN;
        }
        if (in_headroom(fd)) {
            close(fd);
            warn_full(a);
            continue;
        }
        int on = 1;
        if (!a->listeners[i].is_unix) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
        a->on_connection(a->ctx, fd, i, &from);
    }
}

static void reopen_asked(struct acceptor *a)
{
    eventfd_t n;
    eventfd_read(a->wake_fd, &n);
    unsigned asked = atomic_exchange(&a->reopen, 0);
    for (int i = 0; i < a->num_listeners; i++) {
        if (!(asked >> i & 1)) {
            continue;
        }
        struct error err;
        char name[128];
        listener_name(&a->listeners[i], name, sizeof name);
        if (listener_reopen(&a->listeners[i], &err)) {
            log_error("%s", err.text);
        } else {
            log_warn("listening on %s anew", name);
        }
        a->polled[i].fd = a->listeners[i].fd; /* -1: poll passes over it */
    }
}

static void *accept_main(void *arg)
{
    struct acceptor *a = arg;
    int n = a->num_listeners;
    bool tired = false;
    for (;;) {
        /* Out of descriptors: only the wake is listened to for a moment. */
        struct pollfd *from = tired ? &a->polled[n] : a->polled;
        poll(from, tired ? 1 : (nfds_t)n + 1, tired ? PAUSE_MS : -1);
        tired = false;
        if (atomic_load(&a->stop)) {
            return NULL;
        }
        if (a->polled[n].revents) {
            reopen_asked(a);
            continue;
        }
        for (int i = 0; i < n; i++) {
            if (a->polled[i].revents && !accept_all(a, i)) {
                warn_full(a);
                tired = true;
            }
        }
    }
}

int acceptor_new(struct acceptor **out, struct listener *listeners, int num_listeners,
                 acceptor_take *on_connection, void *ctx, struct error *err)
{
    ASSERT(num_listeners <= MAX_LISTENERS);
    struct acceptor *a = calloc(1, sizeof *a);
    if (!a) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    a->on_connection = on_connection;
    a->ctx = ctx;
    a->listeners = listeners;
    a->num_listeners = num_listeners;
    for (int i = 0; i < num_listeners; i++) {
        a->polled[i] = (struct pollfd){.fd = listeners[i].fd, .events = POLLIN};
    }
    a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->polled[num_listeners] = (struct pollfd){.fd = a->wake_fd, .events = POLLIN};
    int e = a->wake_fd < 0 ? errno : pthread_create(&a->thread, NULL, accept_main, a);
    if (e) {
        if (a->wake_fd >= 0) {
            close(a->wake_fd);
        }
        free(a);
        return error_errno(err, e, "start to accept connections");
    }
    *out = a;
    return 0;
}

void acceptor_reopen(struct acceptor *a, int i)
{
    atomic_fetch_or(&a->reopen, 1u << i);
    eventfd_write(a->wake_fd, 1);
}

void acceptor_free(struct acceptor *a)
{
    if (!a) {
        return;
    }
    atomic_store(&a->stop, true);
    eventfd_write(a->wake_fd, 1);
    pthread_join(a->thread, NULL);
    close(a->wake_fd);
    free(a);
}
