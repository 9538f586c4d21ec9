/* One member's end of a communicator on one host (private to comm_host*.c): its slot, its barrier,
 * the call that it is in. */
#ifndef TANDEM_RUNTIME_COMM_HOST_GROUP_H
#define TANDEM_RUNTIME_COMM_HOST_GROUP_H

#include <stdatomic.h>

#include "runtime/comm/comm.h"
#include "runtime/comm/comm_host_segment.h"

struct host_group {
    struct comm base;
    struct device *dev;             /* borrowed */
    struct segment_header *segment; /* borrowed from the world */
    struct segment_slot *slot;
    int32_t world_rank;
    int32_t members[COMM_HOST_MAX_RANKS]; /* world ranks */
    void *staging[COMM_HOST_MAX_RANKS];   /* of each member; the others' after the first barrier */
    uint32_t staging_idx;
    char name[COMM_HOST_NAME_MAX];
    const char *const *hosts; /* of the world's ranks; NULL = not known */
    _Atomic uint64_t *turns;  /* calls of this rank so far, over all its communicators */
    int64_t deadline_ns;
    int spins;           /* pauses before it sleeps; 0 where ranks outnumber cores */
    uint32_t generation; /* of the slot, as this member knows it */
    uint32_t num_calls;
    /* Messages between two members: calls of that kind, and messages so far by peer. */
    uint32_t num_exchanges;
    uint32_t num_sent[COMM_HOST_MAX_RANKS], num_asked[COMM_HOST_MAX_RANKS];
    /* Between group_begin and group_end. */
    bool is_grouping;
    struct host_message *messages;
    int32_t num_messages, max_messages;
};

/* One send or receive. */
struct host_message {
    bool is_send;
    enum dtype dtype;
    int32_t peer;
    int64_t n;
    void *mem; /* a send's isn't written */
    char what[COMM_WHAT_MAX];
};

/* A call on its way through a stream. */
struct host_call {
    struct host_group *group;
    enum segment_call_kind kind;
    enum dtype dtype;
    enum comm_op op;
    int32_t root;
    int64_t n;
    void *dst;
    const void *src;
    uint64_t turn;
    char what[COMM_WHAT_MAX];
    struct host_message *messages; /* of an exchange; freed by who runs it */
    int32_t num_messages;
};

/* "all-reduce of 1,048,576 fp32", "all-reduce of bucket 3 (1,048,576 fp32) over " group; group "" =
 * it has no name. */
void host_call_text(const struct segment_call *call, const char *group,
                    char text[COMM_HOST_CALL_TEXT_MAX]);

/* The call that a standstill is put down to (the first in the program's order), and the world ranks
 * that are missing in it: their number, at most COMM_HOST_MAX_RANKS. -1: nobody waits. */
int host_first_missing(struct segment_header *h, int32_t *ranks, struct comm_host_missing *call);

/* In words, whom all wait for; returns its rank, -1 where nobody is missing. doing: what the asker
 * waits in. */
int32_t host_blame(struct segment_header *h, const char *const *hosts,
                   const struct segment_call *doing, const char *group, double waited_s, char *out,
                   size_t size);

/* Waits until every member is here. -1: a member is missing at the deadline (the whole gang is
 * aborted then, with its name), or someone aborted. doing: for the error. */
int host_group_barrier(struct host_group *g, const struct segment_call *doing, struct error *err);

/* The deadline has passed in this call: aborts the gang in the missing rank's name. Always -1. */
int host_group_fail_deadline(struct host_group *g, const struct segment_call *doing,
                             struct error *err);
/* The gang is aborted. Always -1. */
int host_group_fail_aborted(struct host_group *g, const struct segment_call *doing,
                            struct error *err);
/* Two members' calls don't fit: aborts the gang, culprit and reason in all errors. Always -1. */
int host_group_fail_misfit(struct host_group *g, const struct segment_call *doing, int32_t culprit,
                           const char *reason, struct error *err);
/* What this member is in, for who looks on. */
void host_group_show(struct host_group *g, const struct segment_call *call);
void host_cpu_pause(void);

/* Says what this member calls, waits for all, compares. The members' calls can be seen through
 * host_group_call until this member's next call. */
int host_group_enter(struct host_group *g, const struct segment_call *mine, struct error *err);
const struct segment_call *host_group_call(const struct host_group *g, int32_t member);

/* The closure of a call: runs it to its end. args: struct host_call. */
int host_call_run(void *args, struct error *err);

/* Sends and receives all of these, side by side: whichever can go on does. */
int host_exchange_run(struct host_group *g, const struct host_message *messages, int32_t num,
                      uint64_t turn, struct error *err);

#endif
