#include "server/rpc/selfcheck.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum {
    MAX_DOORS = 10,
    EVERY_S = 2,
    PATIENCE_S = 3,
    FAILURES = 3, /* in a row, until something is done */
    FRAME_HEADER = 9,
    FRAME_SETTINGS = 4,
};

enum verdict {
    DOOR_OPEN,
    DOOR_BUSY,  /* takes the connection and closes it */
    DOOR_BLIND, /* this thread got no descriptor */
    DOOR_DEAF,
};

struct door {
    struct sockaddr_storage sa;
    socklen_t len;
    char name[128];
    int failures;
};

struct selfcheck {
    struct selfcheck_options options;
    struct door doors[MAX_DOORS];
    SSL_CTX *ctx; /* owned; NULL without TLS */
    pthread_t thread;
    pthread_mutex_t lock; /* guards stop */
    pthread_cond_t changed;
    bool stop;
};

/* ---- one look ------------------------------------------------------------------------------ */

/* The preface and an empty SETTINGS frame: RFC 9113, 3.4. */
static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

/* Else it would come from the door's own address, and be turned away where that one has as many
 * connections as an address may have. */
static void come_from_loopback(int fd, int family)
{
    if (family == AF_INET) {
        const struct sockaddr_in v4 = {.sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        bind(fd, (const struct sockaddr *)&v4, sizeof v4);
    } else if (family == AF_INET6) {
        const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
        bind(fd, (const struct sockaddr *)&v6, sizeof v6);
    }
}

static int connect_from(const struct door *d, bool loopback, enum verdict *v)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(d->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *v = DOOR_BLIND;
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (loopback) {
        come_from_loopback(fd, d->sa.ss_family);
    }
    if (connect(fd, (const struct sockaddr *)&d->sa, d->len) != 0) {
        *v = DOOR_DEAF;
        close(fd);
        return -1;
    }
    return fd;
}

/* From where the route is not, it comes from where the kernel says. */
static int connect_to(const struct door *d, enum verdict *v)
{
    int fd = connect_from(d, true, v);
    return fd < 0 && *v == DOOR_DEAF && d->sa.ss_family != AF_UNIX ? connect_from(d, false, v) : fd;
}

/* What a read of the first frame has brought: n < 0 is an error in errno. */
static enum verdict judge(const unsigned char *frame, ssize_t n)
{
    if (n == FRAME_HEADER) {
        return frame[3] == FRAME_SETTINGS ? DOOR_OPEN : DOOR_DEAF;
    }
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? DOOR_DEAF : DOOR_BUSY;
}

static enum verdict look_plain(int fd)
{
    unsigned char frame[FRAME_HEADER];
    ssize_t n = send(fd, preface, sizeof preface - 1, MSG_NOSIGNAL);
    n = n < 0 ? n : recv(fd, frame, sizeof frame, MSG_WAITALL);
    return judge(frame, n);
}

static enum verdict look_tls(struct selfcheck *s, int fd)
{
    unsigned char frame[FRAME_HEADER];
    int got = 0;
    SSL *ssl = SSL_new(s->ctx);
    if (!ssl) {
        return DOOR_BLIND;
    }
    SSL_set_fd(ssl, fd);
    ERR_clear_error();
    errno = 0;
    int r = SSL_connect(ssl);
    if (r == 1 && !s->options.client_cert) {
        r = SSL_write(ssl, preface, sizeof preface - 1);
        while (r > 0 && got < FRAME_HEADER) {
            r = SSL_read(ssl, frame + got, FRAME_HEADER - got);
            got += r > 0 ? r : 0;
        }
    }
    enum verdict v = judge(frame, got == FRAME_HEADER ? got : -1);
    if (s->options.client_cert && (r == 1 || ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_SSL)) {
        v = DOOR_OPEN; /* it has answered, if only with an alert */
    }
    ERR_clear_error();
    SSL_free(ssl);
    return v;
}

static enum verdict look(struct selfcheck *s, const struct door *d)
{
    enum verdict v = DOOR_DEAF;
    int fd = connect_to(d, &v);
    if (fd >= 0) {
        bool tls = s->options.tls && d->sa.ss_family != AF_UNIX;
        v = tls ? look_tls(s, fd) : look_plain(fd);
        close(fd);
    }
    return v;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void round_of_looks(struct selfcheck *s)
{
    static const char *const words[] = {
        [DOOR_OPEN] = "answers",
        [DOOR_BUSY] = "turns connections away",
        [DOOR_BLIND] = "can't be looked at: the process has no descriptor left",
        [DOOR_DEAF] = "doesn't answer; it is opened again",
    };
    bool ok = true;
    for (int i = 0; i < s->options.num_listeners; i++) {
        struct door *d = &s->doors[i];
        enum verdict v = look(s, d);
        if (v == DOOR_OPEN && d->failures >= FAILURES) {
            log_info("%s %s again", d->name, words[v]);
        }
        d->failures = v == DOOR_OPEN ? 0 : d->failures + 1;
        if (d->failures < FAILURES) {
            continue;
        }
        ok = false;
        if (d->failures == FAILURES) {
            log_warn("%s %s", d->name, words[v]);
        }
        if (v == DOOR_DEAF) {
            s->options.reopen(s->options.ctx, i);
        }
    }
    s->options.healthy(s->options.ctx, ok);
    s->options.tick(s->options.ctx);
}

static void *selfcheck_main(void *arg)
{
    struct selfcheck *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += EVERY_S;
        while (!s->stop && pthread_cond_timedwait(&s->changed, &s->lock, &until) == 0) {
        }
        if (!s->stop) {
            pthread_mutex_unlock(&s->lock);
            round_of_looks(s);
            pthread_mutex_lock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* All of this host's addresses are reached by loopback's. */
static void note_door(struct door *d, const struct listener *l)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&d->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&d->sa;
    listener_name(l, d->name, sizeof d->name);
    if (l->is_unix) {
        struct sockaddr_un *un = (struct sockaddr_un *)&d->sa;
        un->sun_family = AF_UNIX;
        memcpy(un->sun_path, l->path, sizeof un->sun_path);
        d->len = sizeof *un;
        return;
    }
    d->sa = l->bound;
    d->len = d->sa.ss_family == AF_INET6 ? sizeof *v6 : sizeof *v4;
    if (d->sa.ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
        v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (d->sa.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) {
        v6->sin6_addr = in6addr_loopback;
    }
}

/* It looks for an answer, not for an identity: no certificate is checked. */
static SSL_CTX *new_client(void)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    ASSERT(ctx && SSL_CTX_set_alpn_protos(ctx, h2, sizeof h2) == 0);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_NONE, NULL);
    return ctx;
}

int selfcheck_new(struct selfcheck **out, const struct selfcheck_options *options,
                  struct error *err)
{
    ASSERT(options->num_listeners <= MAX_DOORS);
    struct selfcheck *s = calloc(1, sizeof *s);
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    s->options = *options;
    for (int i = 0; i < options->num_listeners; i++) {
        note_door(&s->doors[i], &options->listeners[i]);
    }
    s->ctx = options->tls ? new_client() : NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    int e = pthread_create(&s->thread, NULL, selfcheck_main, s);
    if (e) {
        SSL_CTX_free(s->ctx);
        free(s);
        return error_errno(err, e, "start the thread that checks the listeners");
    }
    *out = s;
    return 0;
}

void selfcheck_free(struct selfcheck *s)
{
    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    SSL_CTX_free(s->ctx);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
