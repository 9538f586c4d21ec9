/* Communicators between ranks on one host: one shared segment for the gang, futexes, no spinning
 * where ranks outnumber cores.
 *
 * The segment is one memfd that tandem-node makes (comm_host_segment_bytes) and every rank maps
 * whole: a control page, then an area per rank. Memory from comm_host_alloc lies in the rank's own
 * area and is reduced without a copy; other memory is staged. Ranks may be threads of one process
 * or processes. */
#ifndef TANDEM_RUNTIME_COMM_HOST_H
#define TANDEM_RUNTIME_COMM_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/comm.h"
#include "runtime/comm/comm_board.h"

#define COMM_HOST_MAX_RANKS 256

/* One rank's view of the gang's segment. */
struct comm_host_world;

/* Bytes of the whole segment. area_bytes: what each rank may comm_host_alloc (plan: shared_bytes).
 */
size_t comm_host_segment_bytes(int32_t num_ranks, size_t area_bytes);

/* Prepares a fresh (zeroed) segment; once, by its maker, before any rank opens it. */
void comm_host_segment_init(void *segment, int32_t num_ranks, size_t area_bytes);

/* Makes a sealed memfd with an initialised segment. Returns the descriptor (CLOEXEC) in *fd. */
int comm_host_segment_new(int32_t num_ranks, size_t area_bytes, int *fd, struct error *err);

/* From another process or thread (tandem-node): every call of every rank fails from now on, saying
 * reason ("rank 2 was killed by signal 9"). Async-signal-safe. */
void comm_host_segment_abort(void *segment, int32_t culprit_rank, const char *reason);

/* Has anyone aborted it (a rank whose deadline passed, too)? Then who is to blame (-1: nobody) and
 * why. */
bool comm_host_segment_culprit(void *segment, int32_t *culprit_rank, char *reason, size_t size);

#define COMM_HOST_CALL_TEXT_MAX 192

/* A rank that others wait for. */
struct comm_host_missing {
    int32_t rank;
    uint32_t call_number; /* of its communicator's calls, from 1 */
    /* "reduce-scatter of bucket 3 (65,536 fp32) over the shard group (data 0-3)" */
    char call[COMM_HOST_CALL_TEXT_MAX];
};

/* From another process (tandem-node), at any time: who is missing just now, at most max, in the
 * one call that all else waits for. What is found is worth something where it stays so. */
int comm_host_segment_missing(void *segment, struct comm_host_missing *out, int max);
/* The first call in which others wait for this very rank, if they do. */
bool comm_host_segment_waits_for(void *segment, int32_t rank, struct comm_host_missing *out);

/* Maps fd (borrowed) as rank; deadline_ms bounds every collective. Waits for nobody. */
int comm_host_open(struct comm_host_world **out, int fd, int32_t rank, int32_t num_ranks,
                   int64_t deadline_ms, struct error *err);
void comm_host_close(struct comm_host_world *w);
/* The same world, for who doesn't care of which kind it is; its close is comm_host_close. NULL for
 * NULL. */
struct comm_world *comm_host_as_world(struct comm_host_world *w);
/* Its segment as the board of an accelerator's communicators. As long as the world; NULL for NULL.
 */
struct comm_board *comm_host_board(struct comm_host_world *w);

/* Where the ranks are, for messages: [num_ranks], borrowed; an entry may be NULL. For communicators
 * that are made afterwards. */
void comm_host_set_hosts(struct comm_host_world *w, const char *const *hosts);

/* This rank can't go on: every call of every rank fails from now on, saying reason. Any thread. */
void comm_host_abort(struct comm_host_world *w, const char *reason);

/* Zeroed, 64-byte aligned memory in this rank's area; NULL = the area is full, or there
 * is no such memory. Never returned. */
void *comm_host_alloc(struct comm_host_world *w, size_t bytes);

/* What this rank has of the segment: given out of its area, and pages of its communicators' staging
 * that were touched so far. */
struct comm_host_use {
    int64_t area_bytes, staging_bytes;
};
struct comm_host_use comm_host_used(const struct comm_host_world *w);

/* A communicator of the members (world ranks, ascending, this rank among them). Every member
 * calls it in the same order; waits for nobody. One communicator belongs to one stream. */
int comm_host_comm_new(struct comm_host_world *w, struct device *dev, const int32_t *members,
                       int32_t num_members, struct comm **out, struct error *err);

#define COMM_HOST_NAME_MAX 64

/* What c is, for messages: "the shard group (data 0-3)". background: its calls wait while other
 * work goes on (a slow disk), so they are not what a standstill is put down to if there is another.
 */
void comm_host_comm_name(struct comm *c, const char *name, bool background);

#endif
