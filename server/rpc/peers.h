/* Who is connected over TLS: how many, from where, and by which descriptor core knows them.
 *
 * Core calls a connection that it was given "fd:N", so N leads from a call to its address. A number
 * that has ended isn't used again for a while: no call that still waits in a queue is taken for a
 * newcomer's. Safe on every thread. */
#ifndef TANDEM_SERVER_RPC_PEERS_H
#define TANDEM_SERVER_RPC_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

/* An address as text, and a NUL. */
#define PEER_TEXT_SIZE 48

/* A v4 address is kept as ::ffff:a.b.c.d. */
struct peer_address {
    uint8_t bytes[16];
};

struct peer_address peer_address_of(const struct sockaddr_storage *sa);
/* "10.1.2.3", "fd00::7": no port. */
void peer_address_text(const struct peer_address *a, char out[PEER_TEXT_SIZE]);
/* This host itself. */
bool peer_address_is_loopback(const struct peer_address *a);

struct peers;
/* Limits: 0 = none. Of v6 addresses a /64 counts as one. Loopback has no limit of its own. */
int peers_new(struct peers **out, int max_connections, int max_per_address, struct error *err);
void peers_free(struct peers *p);

/* One connection more. false: it is over a limit, and *why says over which. */
bool peers_enter(struct peers *p, const struct peer_address *a, const char **why);
void peers_leave(struct peers *p, const struct peer_address *a);
int peers_count(struct peers *p);

/* Gives a descriptor that core is to own a number that is free of memories, and notes whose it is.
 * The descriptor then to be used; -1: out of descriptors, fd is closed. */
int peers_bind(struct peers *p, int fd, const struct peer_address *a);
/* Its connection has ended. */
void peers_unbind(struct peers *p, int fd);
/* Whose descriptor is, or was a moment ago, number fd. */
bool peers_find(struct peers *p, int fd, char out[PEER_TEXT_SIZE]);

#endif
