/* What each connection has taken: its live calls, those it took back, and the bytes that wait for
 * it to read. Core holds a client to its number of streams only once the client has agreed to it,
 * and lets it open and reset streams as fast as it likes; this counts whatever it agrees to.
 *
 * Entering, leaving and what goes between are locked by the owner; charging is safe on every
 * thread, for as long as the call that does it has not left. */
#ifndef TANDEM_SERVER_RPC_CROWD_H
#define TANDEM_SERVER_RPC_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that may wait for one connection, and for all of them. */
#define CROWD_MEMBER_MAX_BYTES ((size_t)128 << 20)
#define CROWD_MAX_BYTES ((size_t)1 << 30)

struct crowd;
struct crowd_member; /* one connection, for as long as it has calls */

/* Calls that a connection may take back within a second of opening them: at once, and for each
 * second that passes. */
#define CROWD_RESETS_MAX 256
#define CROWD_RESETS_PER_S 100
#define CROWD_RESET_MS 1000

/* NULL: out of memory. */
struct crowd *crowd_new(void);
void crowd_free(struct crowd *c);

/* One call more; name: core's word for the connection. NULL: out of memory. */
struct crowd_member *crowd_enter(struct crowd *c, const char *name);
int32_t crowd_calls(const struct crowd_member *m);
/* A call that came at opened_ms is taken back before it was answered; false: too many were. */
bool crowd_reset(struct crowd_member *m, int64_t opened_ms, int64_t now_ms);
/* Hangs up on it. Only where core calls it "fd:N". */
void crowd_hang_up(struct crowd_member *m);
/* One call less; the last one takes the member with it. m may be NULL. */
void crowd_leave(struct crowd_member *m);
/* Bytes more that wait, if they may; bytes that were taken or given up. m may be NULL. */
bool crowd_charge(struct crowd_member *m, size_t bytes);
void crowd_discharge(struct crowd_member *m, size_t bytes);

#endif
