/* One call of nccl, from when it was made to when it is done. */
#ifndef TANDEM_KERNELS_CUSIM_COLLECTIVE_H
#define TANDEM_KERNELS_CUSIM_COLLECTIVE_H

#include <nccl.h>

#include "kernels/cusim/machine.h"
#include "kernels/cusim/peers.h"

/* On the way to a part of a communicator. */
struct comm_split {
    int color, key;
    struct ncclComm **out, *child;
    bool child_blocks, posted;
    uint64_t number;
};

/* COMM_JOINS: not all ranks have come yet. */
enum comm_state { COMM_READY, COMM_JOINS, COMM_SPLITS };

struct ncclComm {
    struct cusim::peers *peers;
    uint64_t num_calls; /* of all ranks together */
    uint64_t num_sent[MAX_PEERS], num_received[MAX_PEERS];
    int num_pending, num_splits;
    bool is_aborted, is_closed; /* closed: freed with the last pending call */
    bool blocks;                /* else its making and splitting go on when somebody asks */
    enum comm_state state;
    struct comm_split split;
    char name[100];
};

namespace cusim
{

enum call_kind {
    CALL_ALL_REDUCE,
    CALL_REDUCE_SCATTER,
    CALL_ALL_GATHER,
    CALL_BROADCAST,
    CALL_REDUCE,
    CALL_SEND,
    CALL_RECEIVE,
};

struct call {
    struct ncclComm *comm;
    struct call_sign sign;
    const void *send;
    void *receive;
    uint64_t number;
    int peer;
    bool posted, done;
    double since_s; /* first asked, 0: never */
};

/* Goes on with it as far as it can; returns whether it is done. */
bool call_step(struct call *c);
/* How many bytes it sends and receives here. */
size_t call_send_bytes(const struct call *c);
size_t call_receive_bytes(const struct call *c);

/* An ncclResult_t that all communicators report, 0: none. */
extern int nccl_broken;
extern int64_t nccl_deadline_ms;

/* Memory of the program, touched in the collective's name. */
void touch_bytes(void *dst, const void *src, size_t bytes);
void touch_poison(void *dst, size_t bytes);
/* dst [count] = the reduction over the ranks of slots[r] [count], from `first` on. */
void touch_reduced(void *dst, const void *const *slots, int num, size_t first, size_t count,
                   int type, int op);

} // namespace cusim

#endif
