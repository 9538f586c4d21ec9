/* The ranks of a communicator, and what they put before each other: memory that all map, so ranks
 * may be processes or threads. Nobody waits here; whoever asks is told whether it is time.
 *
 * Calls are numbered. Each rank has two slots, for odd and even ones: a slot is written again when
 * all are done with the call that it was for. What is sent to one rank goes by a slot of the pair.
 */
#ifndef TANDEM_KERNELS_CUSIM_PEERS_H
#define TANDEM_KERNELS_CUSIM_PEERS_H

#include <stddef.h>
#include <stdint.h>

namespace cusim
{

#define MAX_PEERS 16
#define PEER_SLOT_BYTES ((size_t)64 << 20)

/* What must be the same on all ranks. */
struct call_sign {
    int kind, type, op, root;
    uint64_t count;
};

struct peers;

/* Comes in. `name`: of the segment, as ncclUniqueId has it. */
struct peers *peers_open(const char *name, int num_ranks, int rank);
/* Have all come in? */
bool peers_are_in(struct peers *p);
void peers_close(struct peers *p);
int peers_count(const struct peers *p);
int peers_rank(const struct peers *p);

/* Is my slot for this call free? Where it is, and how to say that it is filled. */
bool peers_may_post(const struct peers *p, uint64_t number);
void *peers_slot(struct peers *p, int rank, uint64_t number, size_t bytes);
void peers_post(struct peers *p, uint64_t number, const struct call_sign *sign);
/* The lowest rank that hasn't posted it, -1: all have. */
int peers_missing(const struct peers *p, uint64_t number);
struct call_sign peers_sign(const struct peers *p, int rank, uint64_t number);
void peers_finish(struct peers *p, uint64_t number);
uint64_t peers_last_post(const struct peers *p, int rank);
/* Is that rank's process gone? */
bool peers_is_gone(const struct peers *p, int rank);

/* Pairs: message `number` from one rank to another. */
bool pair_may_send(const struct peers *p, int to, uint64_t number);
void pair_send(struct peers *p, int to, uint64_t number, const struct call_sign *sign);
bool pair_was_received(const struct peers *p, int to, uint64_t number);
bool pair_has_sent(const struct peers *p, int from, uint64_t number);
struct call_sign pair_sign(const struct peers *p, int from);
void pair_receive(struct peers *p, int from, uint64_t number);
void *pair_slot(struct peers *p, int from, int to, size_t bytes);

} // namespace cusim

#endif
