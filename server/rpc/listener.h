/* A listening socket of the controller: which addresses are allowed, and room for a socket file. */
#ifndef TANDEM_SERVER_RPC_LISTENER_H
#define TANDEM_SERVER_RPC_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/error.h"

struct listener {
    int fd; /* owned; listens, doesn't block; -1: could not be opened again */
    bool is_unix;
    bool for_any; /* unix: every user of the host may connect; so it is never trusted */
    int port;     /* bound; 0 for unix */
    struct sockaddr_storage bound; /* TCP */
    char path[108];                /* unix: the socket file, and which one */
    dev_t device;
    ino_t inode;
};

/* text: host:port, unix:/path or unix-any:/path; host is an address, or localhost. Off loopback
 * only with tls. */
int listener_check(const char *text, bool tls, struct error *err);
/* A socket file that nobody answers on is replaced; the new one is 0600, that of unix-any 0666. */
int listener_open(struct listener *out, const char *text, bool tls, struct error *err);
/* Closes it and opens it at the same place. On an error it stays closed, to be tried again. */
int listener_reopen(struct listener *l, struct error *err);
/* "127.0.0.1:7443", "unix:/path". */
void listener_name(const struct listener *l, char *out, size_t size);
/* Also removes the socket file, if it is still ours. */
void listener_close(struct listener *l);

#endif
