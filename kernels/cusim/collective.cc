#include "kernels/cusim/collective.h"

#include <stdio.h>

namespace cusim
{

int nccl_broken;
int64_t nccl_deadline_ms = 60000;

static size_t nccl_type_bytes(int type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 4;
    }
}

static const char *call_name(int kind)
{
    static const char *const names[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                        "reduce",     "send",           "receive"};
    return names[kind];
}

size_t call_send_bytes(const struct call *c)
{
    size_t bytes = c->sign.count * nccl_type_bytes(c->sign.type);
    switch (c->sign.kind) {
    case CALL_REDUCE_SCATTER:
        return bytes * (size_t)peers_count(c->comm->peers);
    case CALL_BROADCAST:
        return c->sign.root == peers_rank(c->comm->peers) ? bytes : 0;
    case CALL_RECEIVE:
        return 0;
    default:
        return bytes;
    }
}

size_t call_receive_bytes(const struct call *c)
{
    size_t bytes = c->sign.count * nccl_type_bytes(c->sign.type);
    switch (c->sign.kind) {
    case CALL_ALL_GATHER:
        return bytes * (size_t)peers_count(c->comm->peers);
    case CALL_REDUCE:
        return c->sign.root == peers_rank(c->comm->peers) ? bytes : 0;
    case CALL_SEND:
        return 0;
    default:
        return bytes;
    }
}

static void say(char *text, size_t size, const struct call_sign *s)
{
    static const char *const types[] = {"i8",  "u8",  "i32", "u32",  "i64",     "u64",
                                        "f16", "f32", "f64", "bf16", "f8 e4m3", "f8 e5m2"};
    snprintf(text, size, "%s of %llu %s (op %d, root %d)", call_name(s->kind),
             (unsigned long long)s->count, types[s->type], s->op, s->root);
}

static void check_signs(const struct call *c)
{
    const struct peers *p = c->comm->peers;
    for (int r = 0; r < peers_count(p); r++) {
        struct call_sign other = peers_sign(p, r, c->number);
        const struct call_sign *mine = &c->sign;
        if (other.kind != mine->kind || other.type != mine->type || other.op != mine->op ||
            other.root != mine->root || other.count != mine->count) {
            char a[120], b[120];
            say(a, sizeof a, mine);
            say(b, sizeof b, &other);
            fail("nccl: call %llu of communicator %s: rank %d comes with %s, rank %d with %s",
                 (unsigned long long)c->number, c->comm->name, peers_rank(p), a, r, b);
        }
    }
}

/* Nobody waits for ever; where the program has a deadline of its own, that comes first. */
static bool keeps_waiting(struct call *c, int missing)
{
    double now_s = machine_now_s();
    c->since_s = c->since_s > 0 ? c->since_s : now_s;
    if ((now_s - c->since_s) * 1e3 > (double)nccl_deadline_ms) {
        char text[120];
        say(text, sizeof text, &c->sign);
        fail("nccl: communicator %s: rank %d waited %lld ms in call %llu, %s: rank %d hasn't come, "
             "its "
             "last was %llu",
             c->comm->name, peers_rank(c->comm->peers), (long long)nccl_deadline_ms,
             (unsigned long long)c->number, text, missing,
             (unsigned long long)peers_last_post(c->comm->peers, missing));
    }
    return false;
}

static void take_result(struct call *c)
{
    struct peers *p = c->comm->peers;
    int num = peers_count(p);
    int rank = peers_rank(p);
    size_t bytes = c->sign.count * nccl_type_bytes(c->sign.type);
    const void *slots[MAX_PEERS];
    for (int r = 0; r < num; r++) {
        slots[r] = peers_slot(p, r, c->number, 0);
    }
    switch (c->sign.kind) {
    case CALL_ALL_GATHER:
        for (int r = 0; r < num; r++) {
            touch_bytes((char *)c->receive + (size_t)r * bytes, slots[r], bytes);
        }
        break;
    case CALL_BROADCAST:
        touch_bytes(c->receive, slots[c->sign.root], bytes);
        break;
    case CALL_REDUCE_SCATTER:
        touch_reduced(c->receive, slots, num, (size_t)rank * c->sign.count, c->sign.count,
                      c->sign.type, c->sign.op);
        break;
    default:
        if (c->sign.kind == CALL_ALL_REDUCE || rank == c->sign.root) {
            touch_reduced(c->receive, slots, num, 0, c->sign.count, c->sign.type, c->sign.op);
        }
    }
}

static bool step_all(struct call *c)
{
    struct peers *p = c->comm->peers;
    if (!c->posted) {
        if (!peers_may_post(p, c->number)) {
            return keeps_waiting(c, peers_missing(p, c->number - 1));
        }
        size_t bytes = call_send_bytes(c);
        touch_bytes(peers_slot(p, peers_rank(p), c->number, bytes), c->send, bytes);
        peers_post(p, c->number, &c->sign);
        c->posted = true;
        c->since_s = 0;
    }
    int missing = peers_missing(p, c->number);
    if (missing >= 0) {
        return keeps_waiting(c, missing);
    }
    check_signs(c);
    take_result(c);
    peers_finish(p, c->number);
    return true;
}

/* Done when it has been received: a program must not count on room in between. */
static bool step_send(struct call *c)
{
    struct peers *p = c->comm->peers;
    if (!c->posted && pair_may_send(p, c->peer, c->number)) {
        size_t bytes = call_send_bytes(c);
        touch_bytes(pair_slot(p, peers_rank(p), c->peer, bytes), c->send, bytes);
        pair_send(p, c->peer, c->number, &c->sign);
        c->posted = true;
    }
    if (c->posted && pair_was_received(p, c->peer, c->number)) {
        return true;
    }
    return keeps_waiting(c, c->peer);
}

static bool step_receive(struct call *c)
{
    struct peers *p = c->comm->peers;
    if (!pair_has_sent(p, c->peer, c->number)) {
        return keeps_waiting(c, c->peer);
    }
    struct call_sign sent = pair_sign(p, c->peer);
    if (sent.count != c->sign.count || sent.type != c->sign.type) {
        char a[120], b[120];
        say(a, sizeof a, &c->sign);
        say(b, sizeof b, &sent);
        fail("nccl: message %llu from rank %d to rank %d: %s, but it was a %s",
             (unsigned long long)c->number, c->peer, peers_rank(p), a, b);
    }
    touch_bytes(c->receive, pair_slot(p, c->peer, peers_rank(p), 0), call_receive_bytes(c));
    pair_receive(p, c->peer, c->number);
    return true;
}

bool call_step(struct call *c)
{
    if (c->comm->is_aborted) {
        touch_poison(c->receive, call_receive_bytes(c));
        return true;
    }
    if (nccl_broken) {
        return false;
    }
    return c->sign.kind == CALL_SEND      ? step_send(c)
           : c->sign.kind == CALL_RECEIVE ? step_receive(c)
                                          : step_all(c);
}

} // namespace cusim
