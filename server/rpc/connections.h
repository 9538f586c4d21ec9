/* The connections that were given to core, which closes them when it likes. */
#ifndef TANDEM_SERVER_RPC_CONNECTIONS_H
#define TANDEM_SERVER_RPC_CONNECTIONS_H

struct connections;

/* NULL: out of memory. */
struct connections *connections_new(void);
void connections_free(struct connections *c);
/* On any thread, before core has it. */
void connections_note(struct connections *c, int fd);
/* Hangs up on all that are still open. */
void connections_hang_up(struct connections *c);

#endif
