#include "server/rpc/acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    MAX_LISTENERS = 8,
    HEADROOM_MAX = 256, /* descriptors that connections leave to others; at most an eighth */
    PAUSE_MS = 100,     /* after running out of them */
    WARN_EVERY_MS = 60000,
};

struct acceptor {
    pthread_t thread;
    struct pollfd polled[MAX_LISTENERS + 1]; /* the last one: stop */
    bool is_unix[MAX_LISTENERS];
    int num_listeners;
    int stop_fd; /* owned */
    void (*on_connection)(void *ctx, int connection, bool is_unix);
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

/* A frame of its own, by which tests/tsan.supp knows it: gRPC closes the descriptor where TSan isn't
 * looking, and the next user of its number would seem to race with this accept. */
__attribute__((noinline)) static int take_connection(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Takes what waits there. False: out of descriptors, come again later. */
static bool accept_all(struct acceptor *a, int i)
{
    for (;;) {
        int fd = take_connection(a->polled[i].fd);
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
        if (!a->is_unix[i]) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
        a->on_connection(a->ctx, fd, a->is_unix[i]);
    }
}

static void *accept_main(void *arg)
{
    struct acceptor *a = arg;
    int n = a->num_listeners;
    bool tired = false;
    for (;;) {
        /* Out of descriptors: only the stop is listened to for a moment. */
        struct pollfd *from = tired ? &a->polled[n] : a->polled;
        poll(from, tired ? 1 : (nfds_t)n + 1, tired ? PAUSE_MS : -1);
        tired = false;
        if (a->polled[n].revents) {
            return NULL;
        }
        for (int i = 0; i < n; i++) {
            if (a->polled[i].revents && !accept_all(a, i)) {
                warn_full(a);
                tired = true;
            }
        }
    }
}

int acceptor_new(struct acceptor **out, const struct listener *listeners, int num_listeners,
                 void (*on_connection)(void *ctx, int connection, bool is_unix), void *ctx,
                 struct error *err)
{
    ASSERT(num_listeners <= MAX_LISTENERS);
    struct acceptor *a = calloc(1, sizeof *a);
    if (!a) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    a->on_connection = on_connection;
    a->ctx = ctx;
    a->num_listeners = num_listeners;
    for (int i = 0; i < num_listeners; i++) {
        a->polled[i] = (struct pollfd){.fd = listeners[i].fd, .events = POLLIN};
        a->is_unix[i] = listeners[i].is_unix;
    }
    a->stop_fd = eventfd(0, EFD_CLOEXEC);
    a->polled[num_listeners] = (struct pollfd){.fd = a->stop_fd, .events = POLLIN};
    int e = a->stop_fd < 0 ? errno : pthread_create(&a->thread, NULL, accept_main, a);
    if (e) {
        if (a->stop_fd >= 0) {
            close(a->stop_fd);
        }
        free(a);
        return error_errno(err, e, "start to accept connections");
    }
    *out = a;
    return 0;
}

void acceptor_free(struct acceptor *a)
{
    if (!a) {
        return;
    }
    eventfd_write(a->stop_fd, 1);
    pthread_join(a->thread, NULL);
    close(a->stop_fd);
    free(a);
}
