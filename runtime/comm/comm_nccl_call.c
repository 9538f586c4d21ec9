/* NCCL's calls: each goes onto its stream between two marks, and nobody waits for it here. */
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/comm_nccl.h"

/* Of one call while it is put into its stream. */
struct enqueue {
    struct nccl_comm *c;
    struct comm_board_call call;
    struct nccl_mark *mark; /* NULL: none is free, or the stream is captured */
    cudaStream_t s;
};

static ncclDataType_t type_of(enum dtype t)
{
    return t == DTYPE_F64    ? ncclFloat64
           : t == DTYPE_BF16 ? ncclBfloat16
           : t == DTYPE_I32  ? ncclInt32
                             : ncclFloat32;
}

/* Where all are taken, the oldest may be done by now; else this call goes without. */
static struct nccl_mark *take_mark(struct nccl_comm *c)
{
    cudaError_t error;
    if (c->num == NCCL_MARKS && nccl_pop_marks(c, &error) != 0) {
        return NULL;
    }
    return c->num < NCCL_MARKS ? &c->marks[(c->first + c->num) % NCCL_MARKS] : NULL;
}

/* What the watchdog can see of a call that doesn't come back. */
static void say_held(struct nccl_comm *c, const struct comm_board_call *call)
{
    struct nccl_world *w = c->w;
    pthread_mutex_lock(&w->wake_lock);
    w->latest = c;
    w->latest_call = *call;
    w->is_held = true;
    pthread_mutex_unlock(&w->wake_lock);
}

static void say_free(struct nccl_world *w)
{
    pthread_mutex_lock(&w->wake_lock);
    w->is_held = false;
    pthread_mutex_unlock(&w->wake_lock);
}

static int fail(struct enqueue *e, struct error *err)
{
    char text[NCCL_TEXT_MAX];
    nccl_call_text(e->c, &e->call, text, sizeof text);
    return nccl_failure(e->c->w, text, err);
}

/* Holds the world's lock where it returns 0. */
static int begin(struct enqueue *e, struct nccl_comm *c, struct stream *s,
                 const struct comm_board_call *call, struct error *err)
{
    struct nccl_world *w = c->w;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    *e = (struct enqueue){.c = c, .call = *call, .s = cuda_stream_of(s)};
    memcpy(e->call.what, c->base.what, sizeof e->call.what);
    c->base.what[0] = 0;
    if (cuda_use(w->dev, err) != 0) {
        return -1;
    }
    pthread_mutex_lock(&w->lock);
    bool is_message = call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV ||
                      call->kind == COMM_CALL_EXCHANGE;
    c->num_collectives += !is_message;
    e->call.number = c->num_collectives;
    e->call.turn = ++w->turns;
    c->stream = s;
    int rc = 0;
    if (nccl_hear_abort(w) || !c->nccl) {
        rc = fail(e, err);
    } else if (cudaStreamIsCapturing(e->s, &capture) != cudaSuccess ||
               capture != cudaStreamCaptureStatusNone) {
        c->was_captured = true;
    } else if ((e->mark = take_mark(c)) != NULL) {
        e->mark->call = e->call;
        cudaError_t error = cudaEventRecord(e->mark->begun, e->s);
        rc = error == cudaSuccess ? 0 : cuda_error(err, error, "mark before a collective");
    }
    if (rc == 0) {
        say_held(c, &e->call);
    } else {
        pthread_mutex_unlock(&w->lock);
    }
    return rc;
}

static int end(struct enqueue *e, ncclResult_t result, struct error *err)
{
    struct nccl_comm *c = e->c;
    struct nccl_world *w = c->w;
    int rc = 0;
    say_free(w);
    if (atomic_load(&w->has_failed)) {
        rc = fail(e, err); /* the watchdog freed us */
    } else if (result != ncclSuccess) {
        char text[NCCL_TEXT_MAX];
        nccl_call_text(c, &e->call, text, sizeof text);
        rc = nccl_error(err, c->nccl, result, text);
    } else if (e->mark) {
        cudaError_t error = cudaEventRecord(e->mark->ended, e->s);
        rc = error == cudaSuccess ? 0 : cuda_error(err, error, "mark behind a collective");
        c->num += rc == 0;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static int check(struct nccl_comm *c, int64_t n, struct error *err)
{
    ASSERT(n >= 0 && n <= ((int64_t)1 << 48) / c->base.size);
    if (c->is_grouping) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "NCCL: only sends and receives can be grouped");
    }
    return 0;
}

/* ---- collectives ---- */

/* A maximum may lose a NaN, as NCCL's do: who looks for those looks at sums. */
static int all_reduce(struct comm *base, struct stream *s, void *buf, int64_t n, enum dtype t,
                      enum comm_op op, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    struct comm_board_call call = {.kind = COMM_CALL_ALL_REDUCE, .dtype = t, .op = op, .n = n};
    struct enqueue e;
    if (check(c, n, err) != 0 || begin(&e, c, s, &call, err) != 0) {
        return -1;
    }
    ncclRedOp_t nccl_op = op == COMM_MAX ? ncclMax : ncclSum;
    return end(&e, ncclAllReduce(buf, buf, (size_t)n, type_of(t), nccl_op, c->nccl, e.s), err);
}

static int reduce_scatter(struct comm *base, struct stream *s, void *dst, const void *src,
                          int64_t n, enum dtype t, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    struct comm_board_call call = {.kind = COMM_CALL_REDUCE_SCATTER, .dtype = t, .n = n};
    struct enqueue e;
    if (check(c, n, err) != 0 || begin(&e, c, s, &call, err) != 0) {
        return -1;
    }
    return end(&e, ncclReduceScatter(src, dst, (size_t)n, type_of(t), ncclSum, c->nccl, e.s), err);
}

static int all_gather(struct comm *base, struct stream *s, void *dst, const void *src, int64_t n,
                      enum dtype t, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    struct comm_board_call call = {.kind = COMM_CALL_ALL_GATHER, .dtype = t, .n = n};
    struct enqueue e;
    if (check(c, n, err) != 0 || begin(&e, c, s, &call, err) != 0) {
        return -1;
    }
    return end(&e, ncclAllGather(src, dst, (size_t)n, type_of(t), c->nccl, e.s), err);
}

static int broadcast(struct comm *base, struct stream *s, void *buf, int64_t n, enum dtype t,
                     int32_t root, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    struct comm_board_call call = {.kind = COMM_CALL_BROADCAST, .dtype = t, .n = n, .peer = root};
    struct enqueue e;
    ASSERT(root >= 0 && root < base->size);
    if (check(c, n, err) != 0 || begin(&e, c, s, &call, err) != 0) {
        return -1;
    }
    return end(&e, ncclBroadcast(buf, buf, (size_t)n, type_of(t), root, c->nccl, e.s), err);
}

/* NCCL has none: a sum that nobody reads. */
static int barrier(struct comm *base, struct stream *s, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    struct comm_board_call call = {.kind = COMM_CALL_BARRIER};
    struct enqueue e;
    if (check(c, 0, err) != 0 || begin(&e, c, s, &call, err) != 0) {
        return -1;
    }
    return end(&e, ncclAllReduce(c->word, c->word, 1, ncclFloat32, ncclSum, c->nccl, e.s), err);
}

/* ---- messages ---- */

static int group_begin(struct comm *base, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    if (c->is_grouping) {
        return error_set(err, ERR_FAILED_PRECONDITION, "NCCL: a group inside a group");
    }
    c->is_grouping = true;
    return 0;
}

static ncclResult_t put_messages(struct nccl_comm *c, cudaStream_t s)
{
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) {
        return result;
    }
    for (int32_t i = 0; i < c->num_messages && result == ncclSuccess; i++) {
        const struct nccl_message *m = &c->messages[i];
        size_t n = (size_t)m->n;
        result = m->is_send ? ncclSend(m->mem, n, type_of(m->dtype), m->peer, c->nccl, s)
                            : ncclRecv(m->mem, n, type_of(m->dtype), m->peer, c->nccl, s);
    }
    ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

static struct comm_board_call call_of_group(const struct nccl_comm *c)
{
    const struct nccl_message *first = &c->messages[0];
    struct comm_board_call call = {.kind = COMM_CALL_EXCHANGE, .n = c->num_messages};
    bool all_known = true;
    if (c->num_messages == 1) {
        call.kind = first->is_send ? COMM_CALL_SEND : COMM_CALL_RECV;
        call.dtype = first->dtype;
        call.n = first->n;
        call.peer = first->peer;
    }
    for (int32_t i = 0; i < c->num_messages; i++) {
        int32_t peer = c->messages[i].peer;
        all_known = all_known && peer < 64;
        call.peers |= peer < 64 ? (uint64_t)1 << peer : 0;
    }
    call.peers = all_known ? call.peers : 0;
    return call;
}

/* A send to itself is for a receive of the same group. */
static int check_own(const struct nccl_comm *c, struct error *err)
{
    int32_t own = 0;
    for (int32_t i = 0; i < c->num_messages; i++) {
        if (c->messages[i].peer == c->base.rank) {
            own += c->messages[i].is_send ? 1 : -1;
        }
    }
    return own == 0 ? 0
                    : error_set(err, ERR_FAILED_PRECONDITION,
                                "rank %d sends to itself what it doesn't receive in the same group",
                                (int)c->w->base.rank);
}

static int group_end(struct comm *base, struct stream *s, struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    if (!c->is_grouping) {
        return error_set(err, ERR_FAILED_PRECONDITION, "NCCL: the end of a group without one");
    }
    c->is_grouping = false;
    int rc = 0;
    if (c->num_messages > 0) {
        struct comm_board_call call = call_of_group(c);
        struct enqueue e;
        rc = check_own(c, err);
        rc = rc == 0 ? begin(&e, c, s, &call, err) : rc;
        rc = rc == 0 ? end(&e, put_messages(c, e.s), err) : rc;
    }
    c->num_messages = 0;
    return rc;
}

static int add_message(struct comm *base, struct stream *s, const struct nccl_message *m,
                       struct error *err)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    ASSERT(m->n >= 0 && m->n <= (int64_t)1 << 48);
    ASSERT(m->peer >= 0 && m->peer < base->size);
    bool alone = !c->is_grouping;
    if (c->num_messages == c->max_messages) {
        int32_t max = c->max_messages ? 2 * c->max_messages : 16;
        struct nccl_message *grown = realloc(c->messages, (size_t)max * sizeof *grown);
        if (!grown) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "NCCL: no memory for a message");
        }
        c->messages = grown;
        c->max_messages = max;
    }
    c->messages[c->num_messages++] = *m;
    c->is_grouping = true;
    return alone ? group_end(base, s, err) : 0;
}

static int send_to(struct comm *base, struct stream *s, const void *buf, int64_t n, enum dtype t,
                   int32_t peer, struct error *err)
{
    struct nccl_message m = {
        .is_send = true, .dtype = t, .peer = peer, .n = n, .mem = (void *)(uintptr_t)buf};
    return add_message(base, s, &m, err);
}

static int receive_from(struct comm *base, struct stream *s, void *buf, int64_t n, enum dtype t,
                        int32_t peer, struct error *err)
{
    struct nccl_message m = {.dtype = t, .peer = peer, .n = n, .mem = buf};
    return add_message(base, s, &m, err);
}

const struct comm_ops nccl_comm_ops = {
    .name = "nccl",
    .free = nccl_comm_free,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .barrier = barrier,
    .send = send_to,
    .recv = receive_from,
    .group_begin = group_begin,
    .group_end = group_end,
};
