/* nccl: communicators, groups, calls. Ranks are processes or threads of one machine. What nccl
 * leaves undefined (ranks that don't agree about a call) ends the program with words. */
#include "kernels/cusim/collective.h"

#include "kernels/cusim/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cusim
{

#define MAX_GROUP 256

/* What one stream has to do of a group: calls that go on side by side. */
struct batch {
    int num;
    struct call *calls[MAX_GROUP];
};

struct pending {
    struct call *call;
    cudaStream_t stream;
};

static thread_local int group_depth, num_grouped;
static thread_local struct pending grouped[MAX_GROUP];

static void comm_put(struct ncclComm *c)
{
    if (c->num_pending == 0 && c->is_closed) {
        peers_close(c->peers);
        free(c);
    }
}

static enum progress run_batch(const void *args)
{
    struct batch *b = *(struct batch *const *)args;
    bool all_done = true;
    for (int i = 0; i < b->num; i++) {
        struct call *c = b->calls[i];
        c->done = c->done || call_step(c);
        all_done = all_done && c->done;
    }
    if (!all_done) {
        return WORK_WAITS;
    }
    for (int i = 0; i < b->num; i++) {
        struct ncclComm *comm = b->calls[i]->comm;
        comm->num_pending--;
        comm_put(comm);
        free(b->calls[i]);
    }
    free(b);
    return WORK_DONE;
}

static void launch_group()
{
    while (num_grouped > 0) {
        cudaStream_t s = grouped[0].stream;
        struct batch *b = (struct batch *)calloc(1, sizeof *b);
        int num_left = 0;
        for (int i = 0; i < num_grouped; i++) {
            if (grouped[i].stream == s) {
                b->calls[b->num++] = grouped[i].call;
            } else {
                grouped[num_left++] = grouped[i];
            }
        }
        num_grouped = num_left;
        machine_enqueue(s, "a collective", run_batch, &b, sizeof b);
    }
}

static bool op_is_known(const struct call_sign *s)
{
    bool reduces =
        s->kind == CALL_ALL_REDUCE || s->kind == CALL_REDUCE_SCATTER || s->kind == CALL_REDUCE;
    bool type_ok = s->type == ncclFloat32 || s->type == ncclFloat64 || s->type == ncclBfloat16 ||
                   s->type == ncclFloat16 || s->type == ncclInt32 || s->type == ncclInt64;
    return !reduces || (type_ok && s->op >= ncclSum && s->op <= ncclAvg);
}

static uint64_t take_number(struct call *c)
{
    switch (c->sign.kind) {
    case CALL_SEND:
        return ++c->comm->num_sent[c->peer];
    case CALL_RECEIVE:
        return ++c->comm->num_received[c->peer];
    default:
        return ++c->comm->num_calls;
    }
}

static ncclResult_t add(struct call call, cudaStream_t s)
{
    struct machine_guard guard;
    int num = peers_count(call.comm->peers);
    if (call.sign.type < 0 || call.sign.type >= ncclNumTypes || !op_is_known(&call.sign) ||
        call.sign.root < 0 || call.sign.root >= num || call.peer < 0 || call.peer >= num) {
        return ncclInvalidArgument;
    }
    machine_check_range(call.send, call_send_bytes(&call), "an nccl call's send buffer");
    machine_check_range(call.receive, call_receive_bytes(&call), "an nccl call's receive buffer");
    if (stream_check(s, "a collective")->capture) {
        fail("a collective in a stream that is captured: the simulator can't do it again");
    }
    if (num_grouped == MAX_GROUP) {
        fail("nccl: more than %d calls in a group", MAX_GROUP);
    }
    struct call *c = (struct call *)malloc(sizeof *c);
    *c = call;
    c->number = take_number(c);
    c->comm->num_pending++;
    grouped[num_grouped++] = {c, s};
    if (group_depth == 0) {
        launch_group();
    }
    return ncclSuccess;
}

static struct call make(struct ncclComm *comm, enum call_kind kind, const void *send, void *receive,
                        size_t count, ncclDataType_t type, int op, int root, int peer)
{
    struct call c = {};
    c.comm = comm;
    c.sign = {kind, type, op, root, count};
    c.send = send;
    c.receive = receive;
    c.peer = peer;
    return c;
}

static ncclResult_t join(ncclComm_t *out, const char *name, int num, int rank)
{
    struct ncclComm *c = (struct ncclComm *)calloc(1, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    if (!peers_open(&c->peers, name, num, rank, nccl_deadline_ms)) {
        fail("nccl: rank %d: not all %d ranks came to communicator %s within %lld ms", rank, num,
             name, (long long)nccl_deadline_ms);
    }
    *out = c;
    return ncclSuccess;
}

} // namespace cusim

using namespace cusim;

void cusim_nccl_break(int error)
{
    nccl_broken = error;
}

void cusim_nccl_deadline_ms(int64_t deadline_ms)
{
    nccl_deadline_ms = deadline_ms;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int num;
    struct machine_guard guard;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/cusim-nccl.%d.%d.%.0f", (int)getpid(), num++,
             machine_now_s() * 1e6);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int num, ncclUniqueId id, int rank,
                                    ncclConfig_t *)
{
    if (num < 1 || num > MAX_PEERS || rank < 0 || rank >= num || id.internal[0] != '/' ||
        group_depth > 0) {
        return ncclInvalidArgument;
    }
    return join(comm, id.internal, num, rank);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int num, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, num, id, rank, nullptr);
}

/* Over the parent everyone says his color and key; then the colors meet. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *)
{
    struct said {
        int color, key;
    };
    struct peers *p = comm->peers;
    *out = nullptr;
    uint64_t number = ++comm->num_calls;
    struct call_sign sign = {-1, ncclInt32, 0, 0, (uint64_t)++comm->num_splits};
    double until_s = machine_now_s() + (double)nccl_deadline_ms * 1e-3;
    for (bool posted = false; !posted || peers_missing(p, number) >= 0;) {
        if (!posted && peers_may_post(p, number)) {
            struct said *mine =
                (struct said *)peers_slot(p, peers_rank(p), number, sizeof(struct said));
            *mine = {color, key};
            peers_post(p, number, &sign);
            posted = true;
        } else if (machine_now_s() > until_s) {
            fail("nccl: rank %d waited in ncclCommSplit: rank %d hasn't come", peers_rank(p),
                 peers_missing(p, number));
        } else {
            usleep(200);
        }
    }
    int num = 0, rank = 0;
    for (int r = 0; r < peers_count(p); r++) {
        if (peers_sign(p, r, number).kind != sign.kind) {
            fail("nccl: rank %d is in ncclCommSplit, rank %d in another call", peers_rank(p), r);
        }
        const struct said *said = (const struct said *)peers_slot(p, r, number, 0);
        bool before = said->key < key || (said->key == key && r < peers_rank(p));
        num += said->color == color;
        rank += said->color == color && before;
    }
    peers_finish(p, number);
    if (color == NCCL_SPLIT_NOCOLOR) {
        return ncclSuccess;
    }
    char name[100];
    int length = snprintf(name, sizeof name, "%s.%d.%d", comm->name, comm->num_splits, color);
    return length < (int)sizeof name ? join(out, name, num, rank) : ncclInternalError;
}

static bool has_none_pending(void *comm)
{
    return ((ncclComm_t)comm)->num_pending == 0;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    struct machine_guard guard;
    machine_drive(nullptr, has_none_pending, c);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    struct machine_guard guard;
    ncclCommFinalize(c);
    c->is_closed = true;
    comm_put(c);
    return ncclSuccess;
}

/* What waits in it is done, with NaNs. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    struct machine_guard guard;
    c->is_aborted = true;
    c->is_closed = true;
    comm_put(c);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    struct machine_guard guard;
    *error = (ncclResult_t)nccl_broken;
    for (int r = 0; r < peers_count(c->peers) && c->num_pending > 0; r++) {
        if (*error == ncclSuccess && peers_is_gone(c->peers, r)) {
            *error = ncclRemoteError;
        }
    }
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *num)
{
    *num = peers_count(c->peers);
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
    *rank = peers_rank(c->peers);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group_depth == 0) {
        return ncclInvalidUsage;
    }
    if (--group_depth == 0) {
        struct machine_guard guard;
        launch_group();
    }
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    return add(make(c, CALL_ALL_REDUCE, send, receive, count, type, op, 0, 0), s);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    return add(make(c, CALL_REDUCE_SCATTER, send, receive, count, type, op, 0, 0), s);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t s)
{
    return add(make(c, CALL_ALL_GATHER, send, receive, count, type, 0, 0, 0), s);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t c, cudaStream_t s)
{
    return add(make(c, CALL_BROADCAST, send, receive, count, type, 0, root, 0), s);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s)
{
    return add(make(c, CALL_REDUCE, send, receive, count, type, op, root, 0), s);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    return add(make(c, CALL_SEND, send, nullptr, count, type, 0, 0, peer), s);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    return add(make(c, CALL_RECEIVE, nullptr, receive, count, type, 0, 0, peer), s);
}

const char *ncclGetErrorString(ncclResult_t e)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "operation in progress"};
    return e >= 0 && e < ncclNumResults ? texts[e] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

} // extern "C"
