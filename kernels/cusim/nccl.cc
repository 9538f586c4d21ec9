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
        if (c->split.child) {
            peers_close(c->split.child->peers);
            free(c->split.child);
        }
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

static bool nccl_holds;

static bool comes_back(const struct ncclComm *c)
{
    struct machine_guard guard;
    return !nccl_holds || c->is_aborted;
}

static ncclResult_t add(struct call call, cudaStream_t s)
{
    if (nccl_holds) {
        while (!comes_back(call.comm)) {
            usleep(200);
        }
        return ncclInternalError;
    }
    struct machine_guard guard;
    int num = peers_count(call.comm->peers);
    if (call.comm->state != COMM_READY) {
        return ncclInvalidUsage;
    }
    if (!call.comm->blocks) {
        fail("nccl: calls of a communicator that doesn't block aren't simulated");
    }
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

/* ---- communicators ---- */

static struct ncclComm *enter(const char *name, int num, int rank, bool blocks)
{
    struct ncclComm *c = (struct ncclComm *)calloc(1, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->peers = peers_open(name, num, rank);
    c->blocks = blocks;
    c->state = COMM_JOINS;
    return c;
}

static bool config_says(const ncclConfig_t *config, bool *blocks)
{
    if (!config) {
        return true;
    }
    const int undefined = NCCL_CONFIG_UNDEF_INT;
    *blocks = config->blocking == undefined || config->blocking == 1;
    bool blocking_ok = *blocks || config->blocking == 0;
    bool share_ok = config->splitShare == undefined || (unsigned)config->splitShare <= 1;
    int least = config->minCTAs == undefined ? 1 : config->minCTAs;
    int most = config->maxCTAs == undefined ? 64 : config->maxCTAs;
    bool cga_ok = config->cgaClusterSize == undefined || (unsigned)config->cgaClusterSize <= 8;
    return config->size == sizeof *config && config->magic == 0xcafebeef && config->version &&
           blocking_ok && share_ok && cga_ok && least >= 1 && least <= most;
}

/* Over the parent everyone says his color and key. */
struct said {
    int color, key;
};

/* All have said theirs: the child, if there is one here. */
static void make_child(struct ncclComm *c)
{
    struct peers *p = c->peers;
    struct comm_split *s = &c->split;
    int num = 0, rank = 0;
    for (int r = 0; r < peers_count(p); r++) {
        if (peers_sign(p, r, s->number).kind != -1) {
            fail("nccl: rank %d is in ncclCommSplit, rank %d in another call", peers_rank(p), r);
        }
        const struct said *said = (const struct said *)peers_slot(p, r, s->number, 0);
        bool before = said->key < s->key || (said->key == s->key && r < peers_rank(p));
        num += said->color == s->color;
        rank += said->color == s->color && before;
    }
    peers_finish(p, s->number);
    char name[100];
    int length = snprintf(name, sizeof name, "%s.%d.%d", c->name, c->num_splits, s->color);
    if (length >= (int)sizeof name) {
        fail("nccl: communicators are split too often");
    }
    if (s->color != NCCL_SPLIT_NOCOLOR) {
        s->child = enter(name, num, rank, s->child_blocks);
    }
}

/* Goes on with what a communicator is in the middle of; returns whether that is done. */
static bool comm_step(struct ncclComm *c)
{
    struct comm_split *s = &c->split;
    if (c->state == COMM_JOINS && peers_are_in(c->peers)) {
        c->state = COMM_READY;
    }
    if (c->state != COMM_SPLITS) {
        return c->state == COMM_READY;
    }
    if (!s->posted && peers_may_post(c->peers, s->number)) {
        struct call_sign sign = {-1, ncclInt32, 0, 0, (uint64_t)c->num_splits};
        struct said *mine = (struct said *)peers_slot(c->peers, peers_rank(c->peers), s->number,
                                                      sizeof(struct said));
        *mine = {s->color, s->key};
        peers_post(c->peers, s->number, &sign);
        s->posted = true;
    }
    if (!s->child) {
        if (!s->posted || peers_missing(c->peers, s->number) >= 0) {
            return false;
        }
        make_child(c);
    }
    if (s->child && !comm_step(s->child)) {
        return false;
    }
    *s->out = s->child;
    c->split = {};
    c->state = COMM_READY;
    return true;
}

/* As it blocks or not. */
static ncclResult_t comm_go(struct ncclComm *c, const char *what)
{
    double until_s = machine_now_s() + (double)nccl_deadline_ms * 1e-3;
    if (!c->blocks) {
        return ncclInProgress;
    }
    while (!comm_step(c)) {
        if (machine_now_s() > until_s) {
            fail("nccl: rank %d of %d waited %lld ms in %s of communicator %s: not all have come",
                 peers_rank(c->peers), peers_count(c->peers), (long long)nccl_deadline_ms, what,
                 c->name);
        }
        usleep(200);
    }
    return ncclSuccess;
}

} // namespace cusim

using namespace cusim;

void cusim_nccl_hold(void)
{
    nccl_holds = true;
}

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
                                    ncclConfig_t *config)
{
    bool blocks = true;
    if (num < 1 || num > MAX_PEERS || rank < 0 || rank >= num || id.internal[0] != '/' ||
        group_depth > 0 || !config_says(config, &blocks)) {
        return ncclInvalidArgument;
    }
    id.internal[sizeof id.internal - 1] = 0;
    *comm = enter(id.internal, num, rank, blocks);
    return comm_go(*comm, "the making");
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int num, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, num, id, rank, nullptr);
}

/* *out is there once the parent says that it is done. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    bool child_blocks = comm->blocks;
    *out = nullptr;
    if (!config_says(config, &child_blocks) || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
        return ncclInvalidArgument;
    }
    if (comm->state != COMM_READY || group_depth > 0) {
        return ncclInvalidUsage;
    }
    comm->num_splits++;
    comm->split = {color, key, out, nullptr, child_blocks, false, ++comm->num_calls};
    comm->state = COMM_SPLITS;
    return comm_go(comm, "ncclCommSplit");
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

/* What runs in it is done, with NaNs; it stays. */
ncclResult_t ncclCommRevoke(ncclComm_t c, int)
{
    struct machine_guard guard;
    c->is_aborted = true;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    struct machine_guard guard;
    *error = (ncclResult_t)nccl_broken;
    if (*error == ncclSuccess && !comm_step(c)) {
        *error = ncclInProgress;
    }
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
    return nccl_broken ? "broken by cusim_nccl_break" : "";
}

} // extern "C"
