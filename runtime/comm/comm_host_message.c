/* Messages between two members, several side by side.
 *
 * A receiver asks for each of its messages; the sender then puts it piece by piece into its two
 * chunks, and the receiver empties them. A chunk is filled only for who stands there and takes it,
 * so it is free again soon, and no message has to wait for one that another receiver isn't ready
 * for. Nobody waits for one message alone: whichever can go on does, and who has nothing to do
 * sleeps until its bell rings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/comm/comm_host_group.h"

struct progress {
    const struct host_message *m;
    size_t bytes, moved; /* put into chunks, or taken out of them */
    uint32_t number;     /* of the pair's messages in this direction, from 1; 0 = not begun */
    int32_t in_chunks;
    bool begun, done;
};

struct exchange {
    struct host_group *g;
    struct segment_member *me;
    struct progress *all;
    int32_t num, num_left;
    int32_t owner[2];         /* whose piece lies in each of my chunks, -1 = nobody's */
    struct segment_call line; /* what I wait in */
};

static size_t message_offset(int c)
{
    return SEGMENT_MESSAGES_AT + (size_t)c * SEGMENT_CHUNK_BYTES;
}

static struct segment_call line_of(const struct exchange *x, const struct host_message *m)
{
    struct segment_call line = {
        .kind = m->is_send ? CALL_SEND : CALL_RECV,
        .dtype = m->dtype,
        .root = m->peer,
        .n = m->n,
        .offset = -1,
        .staging_idx = x->g->staging_idx,
        .number = x->g->num_exchanges,
        .turn = x->line.turn,
    };
    memcpy(line.what, m->what, sizeof line.what);
    return line;
}

/* Messages of a pair go in order: only the first that isn't done is on its way. */
static bool is_first(const struct exchange *x, int32_t i)
{
    const struct host_message *m = x->all[i].m;
    for (int32_t k = 0; k < i; k++) {
        const struct host_message *o = x->all[k].m;
        if (!x->all[k].done && o->is_send == m->is_send && o->peer == m->peer) {
            return false;
        }
    }
    return true;
}

static void finish(struct exchange *x, struct progress *p)
{
    p->done = true;
    x->num_left--;
}

/* ---- sending ----------------------------------------------------------------------------------
 */

/* Chunks that were emptied are nobody's again. */
static bool take_back(struct exchange *x)
{
    bool any = false;
    for (int c = 0; c < 2; c++) {
        if (x->owner[c] >= 0 && !atomic_load(&x->me->channels[c].to_plus_1)) {
            struct progress *p = &x->all[x->owner[c]];
            x->owner[c] = -1;
            p->in_chunks--;
            any = true;
            if (p->begun && p->moved == p->bytes && p->in_chunks == 0) {
                finish(x, p);
            }
        }
    }
    return any;
}

static void fill(struct exchange *x, int32_t i, int c)
{
    struct host_group *g = x->g;
    struct progress *p = &x->all[i];
    struct segment_channel *channel = &x->me->channels[c];
    size_t left = p->bytes - p->moved;
    size_t len = left < SEGMENT_CHUNK_BYTES ? left : SEGMENT_CHUNK_BYTES;
    if (len) {
        memcpy((char *)g->staging[g->base.rank] + message_offset(c),
               (const char *)p->m->mem + p->moved, len);
    }
    channel->staging_idx = g->staging_idx;
    channel->dtype = p->m->dtype;
    channel->n = p->m->n;
    channel->at = p->moved;
    channel->len = len;
    memcpy(channel->what, p->m->what, sizeof channel->what);
    p->moved += len;
    p->begun = true;
    p->in_chunks++;
    x->owner[c] = i;
    atomic_store(&channel->to_plus_1, p->m->peer + 1);
    segment_ring(&g->slot->members[p->m->peer]);
}

static bool step_send(struct exchange *x, int32_t i)
{
    struct host_group *g = x->g;
    struct progress *p = &x->all[i];
    bool any = false;
    if (!p->number) {
        p->number = ++g->num_sent[p->m->peer];
    }
    uint32_t asked = atomic_load(segment_asked(g->segment, g->slot, g->base.rank, p->m->peer));
    if ((int32_t)(asked - p->number) < 0) {
        return false;
    }
    for (int c = 0; c < 2 && (!p->begun || p->moved < p->bytes); c++) {
        if (x->owner[c] < 0) {
            fill(x, i, c);
            any = true;
        }
    }
    return any;
}

/* ---- receiving --------------------------------------------------------------------------------
 */

/* Whoever notices says it for all: what was sent isn't what is received. */
static int check_fit(struct exchange *x, const struct progress *p,
                     const struct segment_channel *channel, struct error *err)
{
    struct host_group *g = x->g;
    const struct host_message *m = p->m;
    uint64_t chunk = SEGMENT_CHUNK_BYTES;
    if (channel->n == m->n && channel->dtype == m->dtype && channel->len <= chunk &&
        channel->at <= p->bytes && channel->len <= p->bytes - channel->at &&
        channel->staging_idx < SEGMENT_COMMS_PER_RANK &&
        memcmp(channel->what, m->what, sizeof m->what) == 0) {
        return 0;
    }
    struct segment_call mine = line_of(x, m), theirs = mine;
    theirs.kind = CALL_SEND;
    theirs.root = g->base.rank;
    theirs.n = channel->n;
    theirs.dtype = channel->dtype;
    memcpy(theirs.what, channel->what, sizeof theirs.what);
    char sent[COMM_HOST_CALL_TEXT_MAX], wanted[COMM_HOST_CALL_TEXT_MAX];
    char reason[SEGMENT_REASON_MAX];
    host_call_text(&theirs, "", sent);
    host_call_text(&mine, g->name, wanted);
    snprintf(reason, sizeof reason, "rank %d called %s where rank %d called %s",
             (int)g->members[m->peer], sent, (int)g->members[g->base.rank], wanted);
    return host_group_fail_misfit(g, &mine, g->members[m->peer], reason, err);
}

/* Returns whether it came further; -1: an error. */
static int step_receive(struct exchange *x, int32_t i, struct error *err)
{
    struct host_group *g = x->g;
    struct progress *p = &x->all[i];
    struct segment_member *from = &g->slot->members[p->m->peer];
    int any = 0;
    if (!p->number) {
        p->number = ++g->num_asked[p->m->peer];
        atomic_store(segment_asked(g->segment, g->slot, p->m->peer, g->base.rank), p->number);
        segment_ring(from);
    }
    for (int c = 0; c < 2 && !p->done; c++) {
        struct segment_channel *channel = &from->channels[c];
        if (atomic_load(&channel->to_plus_1) != g->base.rank + 1) {
            continue;
        }
        if (check_fit(x, p, channel, err) != 0) {
            return -1;
        }
        if (channel->len) {
            size_t staging = segment_staging_offset(g->segment, g->members[p->m->peer]) +
                             channel->staging_idx * SEGMENT_STAGING_BYTES;
            memcpy((char *)p->m->mem + channel->at,
                   (const char *)g->segment + staging + message_offset(c), channel->len);
        }
        p->moved += channel->len;
        atomic_store(&channel->to_plus_1, 0);
        segment_ring(from);
        any = 1;
        if (p->moved == p->bytes) {
            finish(x, p);
        }
    }
    return any;
}

/* ---- to itself --------------------------------------------------------------------------------
 */

/* The first send to itself is for the first such receive, and so on. */
static int move_own(struct exchange *x, struct error *err)
{
    int32_t r = 0;
    for (int32_t s = 0; s <= x->num; s++) {
        bool is_own = s < x->num && x->all[s].m->peer == x->g->base.rank && x->all[s].m->is_send;
        if (s < x->num && !is_own) {
            continue;
        }
        while (r < x->num && (x->all[r].m->peer != x->g->base.rank || x->all[r].m->is_send)) {
            r++;
        }
        if (s == x->num && r == x->num) {
            break;
        }
        const struct host_message *from = s < x->num ? x->all[s].m : NULL;
        const struct host_message *to = r < x->num ? x->all[r].m : NULL;
        if (!from || !to || from->n != to->n || from->dtype != to->dtype) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "rank %d sends to itself what it doesn't receive in the same group",
                             (int)x->g->world_rank);
        }
        if (x->all[s].bytes && to->mem != from->mem) {
            memmove(to->mem, from->mem, x->all[s].bytes);
        }
        finish(x, &x->all[s]);
        finish(x, &x->all[r]);
        r++;
    }
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------------
 */

/* 1 = something went on, 0 = nothing can, -1 = an error. */
static int step_all(struct exchange *x, struct error *err)
{
    int any = take_back(x);
    for (int32_t i = 0; i < x->num; i++) {
        if (x->all[i].done || !is_first(x, i)) {
            continue;
        }
        int rc = x->all[i].m->is_send ? step_send(x, i) : step_receive(x, i, err);
        if (rc < 0) {
            return -1;
        }
        any |= rc;
    }
    return any;
}

/* For who looks on: the first message that isn't done, rather one whose other end waits for nobody.
 */
static void show_wait(struct exchange *x, uint32_t heard)
{
    struct segment_slot *slot = x->g->slot;
    const struct host_message *first = NULL, *held = NULL;
    for (int32_t i = 0; i < x->num; i++) {
        const struct host_message *m = x->all[i].m;
        if (x->all[i].done) {
            continue;
        }
        first = first ? first : m;
        if (!held && atomic_load(&slot->members[m->peer].waits_for_plus_1) == 0) {
            held = m;
        }
    }
    x->line = line_of(x, held ? held : first);
    host_group_show(x->g, &x->line);
    atomic_store(&x->me->heard, heard);
    atomic_store(&x->me->waits_for_plus_1, (int32_t)x->line.root + 1);
}

/* false: it didn't ring until then. */
static bool wait_bell(struct exchange *x, uint32_t heard, int64_t until_ns)
{
    _Atomic uint32_t *bell = &x->me->bell;
    for (int i = 0; i < x->g->spins; i++) {
        if (atomic_load_explicit(bell, memory_order_acquire) != heard) {
            return true;
        }
        host_cpu_pause();
    }
    atomic_fetch_add(&x->me->bell_sleepers, 1);
    while (atomic_load(bell) == heard && clock_mono_ns() < until_ns) {
        segment_futex_wait(bell, heard, until_ns);
    }
    atomic_fetch_sub(&x->me->bell_sleepers, 1);
    return atomic_load(bell) != heard;
}

static int run(struct exchange *x, struct error *err)
{
    struct host_group *g = x->g;
    int64_t until_ns = 0; /* 0: something went on since */
    while (x->num_left > 0) {
        uint32_t heard = atomic_load(&x->me->bell);
        int rc = step_all(x, err);
        if (rc < 0) {
            return -1;
        }
        if (rc > 0) {
            until_ns = 0;
            continue;
        }
        show_wait(x, heard);
        if (segment_is_aborted(g->segment)) {
            return host_group_fail_aborted(g, &x->line, err);
        }
        until_ns = until_ns ? until_ns : clock_mono_ns() + g->deadline_ns;
        if (!wait_bell(x, heard, until_ns) && clock_mono_ns() >= until_ns) {
            show_wait(x, heard);
            return host_group_fail_deadline(g, &x->line, err);
        }
    }
    return 0;
}

int host_exchange_run(struct host_group *g, const struct host_message *messages, int32_t num,
                      uint64_t turn, struct error *err)
{
    struct progress *all = calloc((size_t)num, sizeof *all);
    if (!all) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "comm_host: no memory for %d messages",
                         (int)num);
    }
    struct exchange x = {.g = g, .all = all, .num = num, .num_left = num, .owner = {-1, -1}};
    for (int32_t i = 0; i < num; i++) {
        all[i].m = &messages[i];
        all[i].bytes = (size_t)messages[i].n * dtype_size(messages[i].dtype);
    }
    x.line.turn = turn;
    g->num_exchanges++;
    int rc = move_own(&x, err);
    if (rc == 0 && x.num_left > 0) {
        x.me = &g->slot->members[g->base.rank];
        x.line = line_of(&x, &messages[0]);
        rc = segment_is_aborted(g->segment) ? host_group_fail_aborted(g, &x.line, err)
                                            : run(&x, err);
        atomic_store(&x.me->waits_for_plus_1, 0);
    }
    free(all);
    return rc;
}
