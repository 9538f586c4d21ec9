/* Who has come to which call: where the ranks of an accelerator's communicators write down how far
 * they and their devices came, so that one that is missing has a name, and where a gang is aborted.
 * What is written there is seen by who looks on from outside (tandem-node), too.
 *
 * A table, since who writes on it may be a plug-in. The host segment's is comm_host_board. */
#ifndef TANDEM_RUNTIME_COMM_BOARD_H
#define TANDEM_RUNTIME_COMM_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "runtime/comm/comm.h"

enum comm_call_kind {
    COMM_CALL_ALL_REDUCE = 1,
    COMM_CALL_REDUCE_SCATTER,
    COMM_CALL_ALL_GATHER,
    COMM_CALL_BROADCAST,
    COMM_CALL_BARRIER,
    COMM_CALL_SEND,
    COMM_CALL_RECV,
    COMM_CALL_EXCHANGE, /* several sends and receives at once */
    COMM_CALL_JOIN,     /* the communicator is made */
    NUM_COMM_CALLS,
};

struct comm_board_call {
    enum comm_call_kind kind;
    enum dtype dtype;
    enum comm_op op;
    int32_t peer; /* of send, recv, broadcast: a member of the group */
    int64_t n;    /* of an exchange: messages */
    /* Of the communicator's collectives, from 1; for messages: how many of those came before. */
    uint32_t number;
    uint64_t turn;  /* of all the rank's calls, from 1: the program's order */
    uint64_t peers; /* of messages: bits of the members that it takes; 0 = nobody says */
    char what[COMM_WHAT_MAX];
};

struct comm_board;
struct comm_board_line; /* a rank's line of one communicator */

#define COMM_BOARD_REASON_MAX 512

struct comm_board_ops {
    /* Members as in comm_world_ops.comm_new. Waits for nobody; valid as long as the board. */
    int (*line_new)(struct comm_board *b, const int32_t *members, int32_t num, const char *name,
                    bool background, struct comm_board_line **out, struct error *err);
    /* The latest call that this rank's device has come to; is_inside: it isn't through with it.
     * One thread at a time for a line. */
    void (*show)(struct comm_board_line *l, const struct comm_board_call *call, bool is_inside);
    /* "all-reduce of bucket 3 (65,536 fp32) over the shard group (data 0-3)" */
    void (*call_text)(struct comm_board_line *l, const struct comm_board_call *call, char *out,
                      size_t size);
    /* Whom all wait for just now, in words: "rank 5 on n3 did not come to ... within 3.0 s".
     * Returns its number, -1 where nobody is missing (words say that, too). */
    int32_t (*blame)(struct comm_board_line *l, const struct comm_board_call *mine, double waited_s,
                     char *out, size_t size);
    /* The first one counts. Any thread. */
    void (*abort)(struct comm_board *b, enum error_code code, int32_t culprit, const char *reason);
    /* Has anyone aborted? Then err says why (doing: what this rank was in). Any thread. */
    bool (*aborted)(struct comm_board *b, const char *doing, struct error *err);
};

struct comm_board {
    const struct comm_board_ops *ops;
};

#endif
