/* The gang's shared segment, as every rank maps it (private to comm_host*.c).
 *
 *   header            who it is for; the abort word
 *   keys [num_slots]  which communicator has a slot; claimed by one compare-and-swap
 *   slots             a barrier, for every member its two latest calls and how far it came, and
 *                     what members send each other
 *   ranks             for every rank: staging of its communicators, then its area
 *
 * Only pages that someone touches cost memory: the generous counts are address space. Nothing in
 * here is a lock that a dying rank could keep; words that are waited on are shared futexes. */
#ifndef TANDEM_RUNTIME_COMM_HOST_SEGMENT_H
#define TANDEM_RUNTIME_COMM_HOST_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "runtime/comm/comm_host.h"

/* Communicators of two or more members that one rank can be in. */
#define SEGMENT_COMMS_PER_RANK 64
/* Staged transfers go through two chunks of this, calls of at most SMALL bytes through one piece
 * and a single barrier. */
#define SEGMENT_CHUNK_BYTES ((size_t)512 << 10)
#define SEGMENT_SMALL_BYTES ((size_t)16 << 10)
/* Messages have two chunks of their own: others may still read the last collective's when the next
 * message goes. */
#define SEGMENT_MESSAGES_AT (2 * SEGMENT_CHUNK_BYTES + 2 * SEGMENT_SMALL_BYTES)
#define SEGMENT_STAGING_BYTES (SEGMENT_MESSAGES_AT + 2 * SEGMENT_CHUNK_BYTES)

#define SEGMENT_REASON_MAX 512

enum segment_abort_state { SEGMENT_SOUND, SEGMENT_ABORT_CLAIMED, SEGMENT_ABORTED };

struct segment_header {
    uint64_t magic;
    uint64_t total_bytes;
    uint64_t area_bytes; /* a whole number of pages */
    int32_t num_ranks;
    uint32_t num_slots;
    _Alignas(64) _Atomic uint32_t abort_state; /* enum segment_abort_state */
    int32_t culprit;
    int32_t code;                    /* enum error_code */
    char reason[SEGMENT_REASON_MAX]; /* valid once abort_state is SEGMENT_ABORTED */
};

enum segment_call_kind {
    CALL_ALL_REDUCE = 1,
    CALL_REDUCE_SCATTER,
    CALL_ALL_GATHER,
    CALL_BROADCAST,
    CALL_BARRIER,
    CALL_SEND,
    CALL_RECV,
    CALL_EXCHANGE,
    CALL_JOIN,
};

/* What a member says about its call before the first barrier of it. */
struct segment_call {
    _Alignas(128) uint32_t kind;
    uint32_t dtype;
    uint32_t op;
    int32_t root;
    int64_t n;
    int64_t offset;       /* of its buffer in the segment; -1 = elsewhere. On a board: peers */
    uint32_t staging_idx; /* which of its staging pieces it gave to this communicator */
    uint32_t number;      /* of the communicator's calls, from 1 */
    uint64_t turn;        /* of all calls that the rank has made, from 1: the program's order */
    char what[COMM_WHAT_MAX];
};

/* A piece on its way to one member, in one of the sender's two chunks. */
struct segment_channel {
    /* 0 = empty; else the rest is that member's to read, until it says 0 again. */
    _Alignas(64) _Atomic int32_t to_plus_1;
    uint32_t staging_idx;
    uint32_t dtype;
    int64_t n;        /* of the whole message */
    uint64_t at, len; /* bytes of it that this piece is */
    char what[COMM_WHAT_MAX];
};

enum segment_named { SEGMENT_NAMELESS, SEGMENT_NAMED, SEGMENT_BACKGROUND };

struct segment_member {
    struct segment_call calls[2];          /* by the parity of the call's number */
    _Alignas(64) _Atomic uint32_t reached; /* value that the generation will have after it */
    _Atomic int32_t world_rank_plus_1;     /* whose line this is */
    _Atomic uint32_t named;                /* enum segment_named */
    char name[COMM_HOST_NAME_MAX]; /* of the communicator, as this member says; once named */
    /* Its latest call once more, for who looks on while ranks go on. */
    _Atomic uint64_t seen[sizeof(struct segment_call) / sizeof(uint64_t)];
    struct segment_channel channels[2];
    _Alignas(64) _Atomic uint32_t bell; /* rung when something has come for it. Waited on. */
    _Atomic uint32_t bell_sleepers;
    /* The member that it waits for, to send or to receive, and the bell as it was then: one that
     * has been rung since has something to do. */
    _Atomic int32_t waits_for_plus_1;
    _Atomic uint32_t heard;
    /* On a board: collectives that it has come to, and whether it is inside its latest call. */
    _Atomic uint32_t came, is_inside;
};

struct segment_slot {
    _Alignas(64) _Atomic uint32_t generation; /* even; bit 0 = aborted. Waited on. */
    _Atomic uint32_t sleepers;
    _Atomic int32_t size;      /* members, who are all known then; 0 = nobody has come yet */
    _Atomic uint32_t is_board; /* it stands for a communicator of another kind */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(128) struct segment_member members[]; /* by group rank */
    /* Behind them: segment_asked */
};

static inline size_t segment_slot_bytes(int32_t num_ranks)
{
    size_t n = (size_t)num_ranks;
    return sizeof(struct segment_slot) + n * sizeof(struct segment_member) +
           (n * n * sizeof(uint32_t) + 127) / 128 * 128;
}

/* How many messages member `to` has asked member `from` for so far: a sender fills its chunks only
 * for who stands there to empty them. */
static inline _Atomic uint32_t *segment_asked(const struct segment_header *h,
                                              struct segment_slot *slot, int32_t from, int32_t to)
{
    _Atomic uint32_t *asked = (_Atomic uint32_t *)(void *)&slot->members[h->num_ranks];
    return asked + (size_t)from * (size_t)h->num_ranks + (size_t)to;
}

/* Offsets from the start of the segment. */
size_t segment_keys_offset(void);
size_t segment_slots_offset(const struct segment_header *h);
size_t segment_staging_offset(const struct segment_header *h, int32_t rank);
size_t segment_area_offset(const struct segment_header *h, int32_t rank);

_Atomic uint64_t *segment_keys(struct segment_header *h);
struct segment_slot *segment_slot_at(struct segment_header *h, uint32_t slot_idx);
/* The slot of key, claimed if nobody has yet; NULL = all are taken. */
struct segment_slot *segment_slot_claim(struct segment_header *h, uint64_t key);

/* Maps fd, which is checked to be a segment for num_ranks. In one process a segment is mapped once,
 * so ranks that are threads share addresses (and a race detector sees what they share). */
int segment_map(int fd, int32_t num_ranks, struct segment_header **out, struct error *err);
void segment_unmap(struct segment_header *h);

/* comm_host_segment_abort with a code of one's own. The first one counts. */
void segment_abort(struct segment_header *h, enum error_code code, int32_t culprit,
                   const char *reason);
bool segment_is_aborted(const struct segment_header *h);
/* Why, into err, behind what the caller was doing. Always -1. */
int segment_abort_error(struct segment_header *h, const char *doing, struct error *err);

/* Sleeps while *word is value, until deadline_ns (monotonic). */
void segment_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline_ns);
void segment_futex_wake_all(_Atomic uint32_t *word);
/* What the communicator is, as this member says. */
void segment_name(struct segment_member *m, const char *name, bool background);
/* What it is in, for who looks on. */
void segment_show(struct segment_member *m, const struct segment_call *call);
/* Something has come for this member. */
void segment_ring(struct segment_member *m);

#endif
