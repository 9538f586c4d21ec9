/* A listening socket of the controller: which addresses are allowed, and room for a socket file. */
#ifndef TANDEM_SERVER_RPC_LISTENER_H
#define TANDEM_SERVER_RPC_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct listener {
    int fd; /* owned; listens, doesn't block */
    bool is_unix;
    int port;       /* bound; 0 for unix */
    char path[108]; /* unix: the socket file, and which one */
    dev_t device;
    ino_t inode;
};

/* text: host:port on loopback, or unix:/path; others are refused: there is no TLS yet. A socket
 * file that nobody answers on is replaced; the new one is 0600. */
int listener_open(struct listener *out, const char *text, struct error *err);
/* Also removes the socket file, if it is still ours. */
void listener_close(struct listener *l);

#endif
