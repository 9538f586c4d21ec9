/* One TLS connection: the peer's socket on one side, a socket pair to core on the other.
 *
 * A state machine without a thread: its owner calls relay_step when a side is ready, and asks it
 * what to wait for. At most one record waits on each side; then the other isn't read. */
#ifndef TANDEM_SERVER_RPC_RELAY_H
#define TANDEM_SERVER_RPC_RELAY_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum relay_state {
    RELAY_HANDSHAKE, /* core doesn't know of it yet */
    RELAY_READY,     /* handshake done: give it relay_open */
    RELAY_OPEN,
    RELAY_LINGER, /* all is said to the peer; waits for it to close */
    RELAY_OVER,   /* relay_close it */
};

struct relay_rest {
    uint8_t *data; /* owned; NULL = nothing waits */
    size_t at, len;
};

struct relay {
    enum relay_state state;
    int net;         /* owned */
    int core;        /* owned; -1 until relay_open, and after core has closed its end */
    int spent;       /* owned; what core was, for the relay's owner to close; -1 = nothing */
    SSL *ssl;        /* owned */
    const char *why; /* over before it was open: why, static */
    bool want_write; /* TLS itself has something to say */
    bool core_hup;
    struct relay_rest to_core, to_net;
};

/* Takes net and ssl. */
void relay_init(struct relay *r, int net, SSL *ssl);
/* Takes our end of the pair. */
void relay_open(struct relay *r, int core);
/* Goes on as far as it can without blocking, within bounds. scratch: RELAY_SCRATCH bytes, shared by
 * all relays of a thread. Core's end has hung up: core_hup. */
#define RELAY_SCRATCH 16384
void relay_step(struct relay *r, bool core_hup, uint8_t *scratch);
/* EPOLL bits to wait for. */
uint32_t relay_net_events(const struct relay *r);
uint32_t relay_core_events(const struct relay *r);
/* Closes and frees all; also sends a last close_notify if there was a handshake. */
void relay_close(struct relay *r);

#endif
