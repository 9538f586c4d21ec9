/* Leases of attached workers, renewed by a thread that never waits for a disk: while one holds, the
 * gang trains on without the controller. Safe on every thread. */
#ifndef TANDEM_SERVER_LEASE_H
#define TANDEM_SERVER_LEASE_H

#include <stdint.h>

#include "server/rpc/call.h"

#define LEASE_TTL_MS (30 * 60 * 1000)
#define LEASE_RENEW_MS 5000

struct lease;

/* ttl_ms: 0 = LEASE_TTL_MS. */
int lease_new(struct lease **out, int64_t ttl_ms);
void lease_free(struct lease *l);
/* Renews at once, then at each lease_renew until lease_remove. */
void lease_add(struct lease *l, struct call *c);
void lease_remove(struct lease *l, struct call *c);
void lease_renew(struct lease *l);
int64_t lease_ttl_ms(const struct lease *l);
/* How often to renew: some times within a lease, LEASE_RENEW_MS at most. */
int64_t lease_renew_ms(const struct lease *l);

#endif
