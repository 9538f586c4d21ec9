/* What the launcher gives to tandem-node on descriptor 3: read once, checked, closed. The token in
 * it stands nowhere else: not in argv, not in the environment, in no file. */
#ifndef TANDEM_RUNTIME_NODE_TICKET_H
#define TANDEM_RUNTIME_NODE_TICKET_H

#include "base/error.h"
#include "proto/names.h"

#define TICKET_FD 3

/* Reads fd to its end. *out: freed with launch_ticket__free_unpacked. */
int ticket_read(int fd, LaunchTicket **out, struct error *err);

#endif
