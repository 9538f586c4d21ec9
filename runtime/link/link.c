/* Two kinds of link behind one struct: a socket, or a function and an inbox for tests. */
#include "runtime/link/link.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

struct inbox_item {
    struct inbox_item *next;
    size_t len;
    uint8_t body[];
};

struct link {
    pthread_mutex_t send_lock;
    int fd;                       /* -1: local */
    struct link_decoder *decoder; /* of the socket */
    link_up_fn on_up;             /* local */
    void *on_up_arg;
    pthread_mutex_t inbox_lock;
    pthread_cond_t inbox_filled;
    struct inbox_item *inbox_first, **inbox_end; /* under inbox_lock */
};

static int link_make(struct link **out)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l) {
        return -1;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->inbox_filled, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&l->send_lock, NULL);
    pthread_mutex_init(&l->inbox_lock, NULL);
    l->inbox_end = &l->inbox_first;
    l->fd = -1;
    *out = l;
    return 0;
}

int link_new(struct link **out, int fd, struct error *err)
{
    struct link *l;
    if (link_make(&l) != 0) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "link: out of memory");
    }
    if (link_decoder_new(&l->decoder) != 0) {
        link_free(l);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "link: out of memory");
    }
    l->fd = fd;
    *out = l;
    return 0;
}

int link_new_local(struct link **out, link_up_fn on_up, void *arg)
{
    if (link_make(out) != 0) {
        return -1;
    }
    (*out)->on_up = on_up;
    (*out)->on_up_arg = arg;
    return 0;
}

void link_free(struct link *l)
{
    if (!l) {
        return;
    }
    while (l->inbox_first) {
        struct inbox_item *item = l->inbox_first;
        l->inbox_first = item->next;
        free(item);
    }
    link_decoder_free(l->decoder);
    pthread_cond_destroy(&l->inbox_filled);
    pthread_mutex_destroy(&l->inbox_lock);
    pthread_mutex_destroy(&l->send_lock);
    free(l);
}

/* ---- up ---------------------------------------------------------------------------------------
 */

int link_frame(struct buf *out, const ProtobufCMessage *message, struct error *err)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    if (len > LINK_MESSAGE_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "a message of %zu bytes; at most %u can be sent", len, LINK_MESSAGE_MAX);
    }
    uint8_t *to = (uint8_t *)buf_reserve(out, 4 + len);
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(len >> (8 * i));
    }
    protobuf_c_message_pack(message, to + 4);
    out->len += 4 + len;
    return 0;
}

static int send_all(int fd, const char *data, size_t len, struct error *err)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd room = {.fd = fd, .events = POLLOUT};
            poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return error_errno(err, errno, "send to tandem-node");
        }
    }
    return 0;
}

int link_send(struct link *l, const RankUp *message, struct error *err)
{
    if (l->fd < 0) {
        l->on_up(l->on_up_arg, message);
        return 0;
    }
    struct buf frame = {0};
    int rc = link_frame(&frame, &message->base, err);
    if (rc == 0) {
        pthread_mutex_lock(&l->send_lock);
        rc = send_all(l->fd, frame.data, frame.len, err);
        pthread_mutex_unlock(&l->send_lock);
    }
    buf_free(&frame);
    return rc;
}

/* ---- down -------------------------------------------------------------------------------------
 */

static int unpack_down(const uint8_t *body, size_t len, RankDown **out, struct error *err)
{
    *out = rank_down__unpack(NULL, len, body);
    return *out ? 0 : error_set(err, ERR_INVALID_ARGUMENT, "tandem-node sent a malformed command");
}

int link_inject(struct link *l, const RankDown *message)
{
    size_t len = rank_down__get_packed_size(message);
    struct inbox_item *item = malloc(sizeof *item + len);
    if (!item) {
        return -1;
    }
    item->next = NULL;
    item->len = len;
    rank_down__pack(message, item->body);
    pthread_mutex_lock(&l->inbox_lock);
    *l->inbox_end = item;
    l->inbox_end = &item->next;
    pthread_cond_signal(&l->inbox_filled);
    pthread_mutex_unlock(&l->inbox_lock);
    return 0;
}

static int poll_inbox(struct link *l, int64_t timeout_ms, RankDown **out, struct error *err)
{
    int64_t until = clock_mono_ns() + timeout_ms * 1000000;
    struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&l->inbox_lock);
    int rc = 0;
    while (!l->inbox_first && timeout_ms > 0 && rc == 0) {
        rc = pthread_cond_timedwait(&l->inbox_filled, &l->inbox_lock, &ts);
    }
    struct inbox_item *item = l->inbox_first;
    if (item) {
        l->inbox_first = item->next;
        l->inbox_end = item->next ? l->inbox_end : &l->inbox_first;
    }
    pthread_mutex_unlock(&l->inbox_lock);
    if (!item) {
        return 0;
    }
    rc = unpack_down(item->body, item->len, out, err);
    free(item);
    return rc;
}

/* Takes what the socket has. 1: something came; 0: nothing is there. */
static int receive(struct link *l, struct error *err)
{
    char data[16384];
    ssize_t n = recv(l->fd, data, sizeof data, MSG_DONTWAIT);
    if (n > 0) {
        return link_decoder_feed(l->decoder, data, (size_t)n, err) == 0 ? 1 : -1;
    }
    if (n == 0) {
        return error_set(err, ERR_UNAVAILABLE, "tandem-node has gone");
    }
    if (errno == EAGAIN || errno == EINTR) {
        return 0;
    }
    return error_errno(err, errno, "receive from tandem-node");
}

int link_poll(struct link *l, int64_t timeout_ms, RankDown **out, struct error *err)
{
    *out = NULL;
    if (l->fd < 0) {
        return poll_inbox(l, timeout_ms, out, err);
    }
    int64_t until = clock_mono_ms() + timeout_ms;
    for (;;) {
        const uint8_t *body;
        size_t len;
        if (link_decoder_next(l->decoder, &body, &len, err) != 0) {
            return -1;
        }
        if (body) {
            return unpack_down(body, len, out, err);
        }
        int got = receive(l, err);
        if (got < 0) {
            return -1;
        }
        int64_t left = until - clock_mono_ms();
        if (got == 0 && left <= 0) {
            return 0;
        }
        if (got == 0) {
            struct pollfd in = {.fd = l->fd, .events = POLLIN};
            poll(&in, 1, left > 60000 ? 60000 : (int)left);
        }
    }
}

int link_die_with_parent(int fd, struct error *err)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
        return error_errno(err, errno, "who is at the other end of the link");
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        return error_errno(err, errno, "ask to die with tandem-node");
    }
    /* It may have died before we asked. */
    if (getppid() != peer.pid) {
        return error_set(err, ERR_UNAVAILABLE, "tandem-node (pid %d) isn't this process's parent",
                         (int)peer.pid);
    }
    return 0;
}
