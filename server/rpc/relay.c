#include "server/rpc/relay.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

enum {
    RECORDS_A_STEP = 8, /* then it is another connection's turn */
    RECORDS_LAST = 64,  /* of an end that has hung up: all that a socket pair can hold */
};

void relay_init(struct relay *r, int net, SSL *ssl)
{
    *r = (struct relay){.state = RELAY_HANDSHAKE, .net = net, .core = -1, .spent = -1, .ssl = ssl};
    SSL_set_fd(ssl, net);
}

void relay_open(struct relay *r, int core)
{
    ASSERT(r->state == RELAY_READY);
    r->core = core;
    r->state = RELAY_OPEN;
}

static void keep_rest(struct relay_rest *rest, const uint8_t *data, size_t len)
{
    ASSERT(!rest->data);
    rest->data = malloc(len);
    ASSERT(rest->data);
    memcpy(rest->data, data, len);
    rest->at = 0;
    rest->len = len;
}

/* n bytes of it went out. */
static void drop_rest(struct relay_rest *rest, size_t n)
{
    rest->at += n;
    if (rest->at == rest->len) {
        free(rest->data);
        *rest = (struct relay_rest){0};
    }
}

/* ---- handshake ----------------------------------------------------------------------------- */

/* What a refused handshake is called in the log. */
static const char *handshake_fault(void)
{
    unsigned long e = ERR_peek_error();
    const char *reason = ERR_reason_error_string(e);
    ERR_clear_error();
    return reason ? reason : "the peer went away";
}

static void shake(struct relay *r)
{
    ERR_clear_error();
    int n = SSL_do_handshake(r->ssl);
    int e = SSL_get_error(r->ssl, n);
    r->want_write = e == SSL_ERROR_WANT_WRITE;
    if (n == 1) {
        const unsigned char *protocol;
        unsigned len;
        SSL_get0_alpn_selected(r->ssl, &protocol, &len);
        r->state = len == 2 ? RELAY_READY : RELAY_OVER;
        r->why = len == 2 ? NULL : "no application protocol (h2) was offered";
    } else if (e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE) {
        r->why = handshake_fault();
        r->state = RELAY_OVER;
    }
}

/* ---- from the network to core -------------------------------------------------------------- */

/* False: core takes no more for now, or has gone. */
static bool give_core(struct relay *r, const uint8_t *data, size_t len)
{
    ssize_t n = r->core < 0 ? -1 : send(r->core, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (r->core < 0 || errno != EAGAIN)) {
        return false; /* core's end is closed: what it has said before is still to be sent */
    }
    size_t sent = n < 0 ? 0 : (size_t)n;
    if (r->to_core.data) {
        drop_rest(&r->to_core, sent);
    } else if (sent < len) {
        keep_rest(&r->to_core, data + sent, len - sent);
    }
    return !r->to_core.data;
}

static void pump_in(struct relay *r, uint8_t *scratch)
{
    struct relay_rest *rest = &r->to_core;
    if (rest->data && !give_core(r, rest->data + rest->at, rest->len - rest->at)) {
        return;
    }
    for (int i = 0; i < RECORDS_A_STEP; i++) {
        ERR_clear_error();
        int n = SSL_read(r->ssl, scratch, RELAY_SCRATCH);
        if (n > 0) {
            if (!give_core(r, scratch, (size_t)n)) {
                return;
            }
            continue;
        }
        int e = SSL_get_error(r->ssl, n);
        r->want_write = r->want_write || e == SSL_ERROR_WANT_WRITE;
        if (e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE) {
            ERR_clear_error();
            r->state = RELAY_OVER;
        }
        return;
    }
}

/* ---- from core to the network -------------------------------------------------------------- */

/* False: the network takes no more for now, or it is over. */
static bool give_net(struct relay *r, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ERR_clear_error();
        int n = SSL_write(r->ssl, data, (int)len);
        if (n <= 0) {
            int e = SSL_get_error(r->ssl, n);
            if (e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE) {
                ERR_clear_error();
                r->state = RELAY_OVER;
            } else if (!r->to_net.data) {
                keep_rest(&r->to_net, data, len);
            }
            return false;
        }
        if (r->to_net.data) {
            drop_rest(&r->to_net, (size_t)n);
        }
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static void say_goodbye(struct relay *r)
{
    ERR_clear_error();
    if (SSL_shutdown(r->ssl) < 0) {
        ERR_clear_error();
    }
    shutdown(r->net, SHUT_WR);
    r->spent = r->core;
    r->core = -1;
    r->state = RELAY_LINGER;
}

static void pump_out(struct relay *r, uint8_t *scratch)
{
    struct relay_rest *rest = &r->to_net;
    if (rest->data && !give_net(r, rest->data + rest->at, rest->len - rest->at)) {
        return;
    }
    for (int i = 0; i < (r->core_hup ? RECORDS_LAST : RECORDS_A_STEP); i++) {
        ssize_t n = recv(r->core, scratch, RELAY_SCRATCH, MSG_DONTWAIT);
        if (n > 0) {
            if (!give_net(r, scratch, (size_t)n)) {
                return;
            }
        } else if (n == 0 || errno != EAGAIN) {
            say_goodbye(r);
            return;
        } else {
            return;
        }
    }
}

/* What still comes is dropped: closing on it would reset the connection, and the peer would lose
 * what it was told last. */
static void linger(struct relay *r, uint8_t *scratch)
{
    for (int i = 0; i < RECORDS_A_STEP; i++) {
        ssize_t n = recv(r->net, scratch, RELAY_SCRATCH, MSG_DONTWAIT);
        if (n <= 0) {
            r->state = n < 0 && errno == EAGAIN ? RELAY_LINGER : RELAY_OVER;
            return;
        }
    }
}

/* ---- the step ------------------------------------------------------------------------------ */

void relay_step(struct relay *r, bool core_hup, uint8_t *scratch)
{
    r->core_hup = r->core_hup || core_hup;
    if (r->state == RELAY_HANDSHAKE) {
        shake(r);
        return;
    }
    if (r->state == RELAY_OPEN) {
        r->want_write = false;
        pump_in(r, scratch);
    }
    if (r->state == RELAY_OPEN) {
        pump_out(r, scratch);
    }
    if (r->state == RELAY_LINGER) {
        linger(r, scratch);
    }
}

uint32_t relay_net_events(const struct relay *r)
{
    bool write = r->want_write || r->to_net.data;
    bool read = r->state != RELAY_OPEN || !r->to_core.data;
    return (read ? EPOLLIN : 0u) | (write ? EPOLLOUT : 0u);
}

uint32_t relay_core_events(const struct relay *r)
{
    return (r->to_net.data ? 0u : EPOLLIN) | (r->to_core.data ? EPOLLOUT : 0u);
}

void relay_close(struct relay *r)
{
    if (r->state == RELAY_READY || r->state == RELAY_OPEN) {
        SSL_shutdown(r->ssl);
    }
    ERR_clear_error();
    SSL_free(r->ssl);
    close(r->net);
    if (r->core >= 0) {
        close(r->core);
    }
    if (r->spent >= 0) {
        close(r->spent);
    }
    free(r->to_core.data);
    free(r->to_net.data);
    r->state = RELAY_OVER;
}
