/* Opening the gang's segment, memory from it, communicators, and the table of comm.h: each call is
 * checked here and put onto its stream; comm_host_call.c runs it there. */
#include "runtime/comm/comm_host.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/comm/comm_host_group.h"
#include "runtime/comm/comm_host_world.h"

#define SPINS 2000

/* ---- world ------------------------------------------------------------------------------------
 */

static const struct comm_world_ops world_ops;

/* Spinning helps only where every rank has a core of its own. */
static int spins_for(int32_t num_ranks)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
        return 0;
    }
    return num_ranks <= CPU_COUNT(&cores) ? SPINS : 0;
}

int comm_host_open(struct comm_host_world **out, int fd, int32_t rank, int32_t num_ranks,
                   int64_t deadline_ms, struct error *err)
{
    ASSERT(num_ranks >= 1 && num_ranks <= COMM_HOST_MAX_RANKS);
    ASSERT(rank >= 0 && rank < num_ranks);
    ASSERT(deadline_ms > 0);
    struct comm_host_world *w = calloc(1, sizeof *w);
    if (!w) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "open the shared segment: out of memory");
    }
    if (segment_map(fd, num_ranks, &w->segment, err) != 0) {
        free(w);
        return -1;
    }
    w->base = (struct comm_world){.ops = &world_ops, .rank = rank, .num_ranks = num_ranks};
    w->deadline_ms = deadline_ms;
    w->spins = spins_for(num_ranks);
    *out = w;
    return 0;
}

void comm_host_close(struct comm_host_world *w)
{
    if (w) {
        host_board_close(w);
        segment_unmap(w->segment);
        free(w);
    }
}

void comm_host_set_hosts(struct comm_host_world *w, const char *const *hosts)
{
    w->hosts = hosts;
}

void *comm_host_alloc(struct comm_host_world *w, size_t bytes)
{
    size_t need = (bytes + 63) / 64 * 64;
    if (need < bytes || need > w->segment->area_bytes - w->area_used) {
        return NULL;
    }
    char *mem = (char *)w->segment + segment_area_offset(w->segment, w->base.rank) + w->area_used;
#ifdef MADV_POPULATE_WRITE
    /* Touched now, in one call, not page by page in the first step; and memory that isn't there is
     * an answer here, a SIGBUS there. Kernels that don't know this (EINVAL) touch later. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)mem & ~(page - 1);
    uintptr_t end = ((uintptr_t)mem + need + page - 1) & ~(page - 1);
    if (madvise((void *)begin, end - begin, MADV_POPULATE_WRITE) != 0 &&
        (errno == ENOMEM || errno == EFAULT)) {
        return NULL;
    }
#endif
    w->area_used += need;
    return mem;
}

/* The segment's pages are there once someone has touched them. */
static int64_t touched_bytes(const char *mem, size_t bytes)
{
    unsigned char there[256];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), most = sizeof there * page;
    int64_t touched = 0;
    for (size_t at = 0; at < bytes; at += most) {
        size_t len = bytes - at < most ? bytes - at : most;
        if (mincore((void *)(uintptr_t)(mem + at), len, there) != 0) {
            return 0;
        }
        for (size_t i = 0; i * page < len; i++) {
            touched += there[i] & 1 ? (int64_t)page : 0;
        }
    }
    return touched;
}

struct comm_host_use comm_host_used(const struct comm_host_world *w)
{
    const char *staging =
        (const char *)w->segment + segment_staging_offset(w->segment, w->base.rank);
    return (struct comm_host_use){
        .area_bytes = (int64_t)w->area_used,
        .staging_bytes = touched_bytes(staging, (size_t)w->num_comms * SEGMENT_STAGING_BYTES),
    };
}

void comm_host_abort(struct comm_host_world *w, const char *reason)
{
    comm_host_segment_abort(w->segment, w->base.rank, reason);
}

/* ---- calls ------------------------------------------------------------------------------------
 */

static int put(struct host_group *g, struct stream *s, struct host_call call, struct error *err)
{
    call.group = g;
    call.turn = atomic_fetch_add(g->turns, 1) + 1;
    memcpy(call.what, g->base.what, sizeof call.what);
    g->base.what[0] = 0;
    static_assert(sizeof call <= DEVICE_CALL_BYTES, "a call travels through the stream by value");
    return g->dev->ops->host_call(g->dev, s, host_call_run, &call, sizeof call, err);
}

static int enqueue(struct comm *c, struct stream *s, const struct host_call *call,
                   struct error *err)
{
    struct host_group *g = (struct host_group *)c;
    int64_t most = (int64_t)1 << 48;
    ASSERT(call->n >= 0 && call->n <= most / c->size);
    ASSERT(call->root >= 0 && call->root < c->size);
    if (g->is_grouping) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "comm_host: only sends and receives can be grouped");
    }
    if ((call->kind == CALL_ALL_REDUCE || call->kind == CALL_REDUCE_SCATTER) &&
        call->dtype == DTYPE_I32) {
        return error_set(err, ERR_UNIMPLEMENTED, "comm_host: integers aren't reduced");
    }
    if (c->size == 1 && (call->kind == CALL_ALL_REDUCE || call->kind == CALL_BROADCAST)) {
        return 0;
    }
    return put(g, s, *call, err);
}

static int host_all_reduce(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t,
                           enum comm_op op, struct error *err)
{
    struct host_call call = {.kind = CALL_ALL_REDUCE, .dtype = t, .op = op, .n = n, .dst = buf};
    return enqueue(c, s, &call, err);
}

static int host_reduce_scatter(struct comm *c, struct stream *s, void *dst, const void *src,
                               int64_t n, enum dtype t, struct error *err)
{
    struct host_call call = {
        .kind = CALL_REDUCE_SCATTER, .dtype = t, .op = COMM_SUM, .n = n, .dst = dst, .src = src};
    return enqueue(c, s, &call, err);
}

static int host_all_gather(struct comm *c, struct stream *s, void *dst, const void *src, int64_t n,
                           enum dtype t, struct error *err)
{
    struct host_call call = {.kind = CALL_ALL_GATHER, .dtype = t, .n = n, .dst = dst, .src = src};
    return enqueue(c, s, &call, err);
}

static int host_broadcast(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t,
                          int32_t root, struct error *err)
{
    struct host_call call = {.kind = CALL_BROADCAST, .dtype = t, .root = root, .n = n, .dst = buf};
    return enqueue(c, s, &call, err);
}

static int host_barrier(struct comm *c, struct stream *s, struct error *err)
{
    struct host_call call = {.kind = CALL_BARRIER};
    return enqueue(c, s, &call, err);
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static int host_group_begin(struct comm *c, struct error *err)
{
    struct host_group *g = (struct host_group *)c;
    if (g->is_grouping) {
        return error_set(err, ERR_FAILED_PRECONDITION, "comm_host: a group inside a group");
    }
    g->is_grouping = true;
    return 0;
}

/* The list goes with the call. */
static int host_group_end(struct comm *c, struct stream *s, struct error *err)
{
    struct host_group *g = (struct host_group *)c;
    if (!g->is_grouping) {
        return error_set(err, ERR_FAILED_PRECONDITION, "comm_host: the end of a group without one");
    }
    struct host_call call = {.kind = CALL_EXCHANGE};
    call.messages = g->messages;
    call.num_messages = g->num_messages;
    g->is_grouping = false;
    g->messages = NULL;
    g->num_messages = g->max_messages = 0;
    if (call.num_messages == 0) {
        return 0;
    }
    return put(g, s, call, err);
}

static int add_message(struct comm *c, struct stream *s, bool is_send, void *mem, int64_t n,
                       enum dtype t, int32_t peer, struct error *err)
{
    struct host_group *g = (struct host_group *)c;
    ASSERT(n >= 0 && n <= (int64_t)1 << 48);
    ASSERT(peer >= 0 && peer < c->size);
    bool alone = !g->is_grouping;
    if (g->num_messages == g->max_messages) {
        int32_t max = g->max_messages ? 2 * g->max_messages : alone ? 1 : 4;
        struct host_message *grown = realloc(g->messages, (size_t)max * sizeof *grown);
        if (!grown) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "comm_host: no memory for a message");
        }
        g->messages = grown;
        g->max_messages = max;
    }
    struct host_message *m = &g->messages[g->num_messages++];
    *m = (struct host_message){.is_send = is_send, .dtype = t, .peer = peer, .n = n, .mem = mem};
    memcpy(m->what, c->what, sizeof m->what);
    c->what[0] = 0;
    g->is_grouping = true;
    return alone ? host_group_end(c, s, err) : 0;
}

static int host_send(struct comm *c, struct stream *s, const void *buf, int64_t n, enum dtype t,
                     int32_t peer, struct error *err)
{
    return add_message(c, s, true, (void *)(uintptr_t)buf, n, t, peer, err);
}

static int host_recv(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t,
                     int32_t peer, struct error *err)
{
    return add_message(c, s, false, buf, n, t, peer, err);
}

static void host_free(struct comm *c)
{
    free(((struct host_group *)c)->messages);
    free(c);
}

static const struct comm_ops host_ops = {
    .name = "host",
    .free = host_free,
    .all_reduce = host_all_reduce,
    .reduce_scatter = host_reduce_scatter,
    .all_gather = host_all_gather,
    .broadcast = host_broadcast,
    .barrier = host_barrier,
    .send = host_send,
    .recv = host_recv,
    .group_begin = host_group_begin,
    .group_end = host_group_end,
};

/* ---- communicators ----------------------------------------------------------------------------
 */

static uint64_t hash_mix(uint64_t h, uint64_t value)
{
    h ^= value + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 33);
}

/* Which communicator this is, alike for all its members and without asking them: its members, and
 * how many of the same members each of them made before it. */
static uint64_t comm_key(struct comm_host_world *w, const int32_t *members, int32_t num)
{
    uint64_t set = hash_mix(1, (uint64_t)num);
    for (int32_t i = 0; i < num; i++) {
        set = hash_mix(set, (uint64_t)members[i]);
    }
    uint64_t before = 0;
    for (int32_t i = 0; i < w->num_comms; i++) {
        before += w->sets[i] == set;
    }
    w->sets[w->num_comms] = set;
    uint64_t key = hash_mix(set, before);
    return key ? key : 1;
}

int host_world_join(struct comm_host_world *w, const int32_t *members, int32_t num,
                    struct segment_slot **slot, uint32_t *idx, struct error *err)
{
    if (w->num_comms == SEGMENT_COMMS_PER_RANK) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "rank %d is in %d communicators already; more can't be", (int)w->base.rank,
                         SEGMENT_COMMS_PER_RANK);
    }
    uint64_t key = comm_key(w, members, num);
    *slot = segment_slot_claim(w->segment, key);
    ASSERT(*slot); /* there are slots for all communicators that the ranks may be in */
    for (int32_t i = 0; i < num; i++) {
        atomic_store(&(*slot)->members[i].world_rank_plus_1, members[i] + 1);
    }
    atomic_store(&(*slot)->size, num);
    *idx = (uint32_t)w->num_comms++;
    return 0;
}

static int group_join(struct comm_host_world *w, struct host_group *g, struct error *err)
{
    if (host_world_join(w, g->members, g->base.size, &g->slot, &g->staging_idx, err) != 0) {
        return -1;
    }
    g->staging[g->base.rank] = (char *)w->segment +
                               segment_staging_offset(w->segment, w->base.rank) +
                               g->staging_idx * SEGMENT_STAGING_BYTES;
    return 0;
}

int comm_host_comm_new(struct comm_host_world *w, struct device *dev, const int32_t *members,
                       int32_t num_members, struct comm **out, struct error *err)
{
    ASSERT(num_members >= 1 && num_members <= w->base.num_ranks);
    struct host_group *g = calloc(1, sizeof *g);
    if (!g) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "new communicator: out of memory");
    }
    g->base = (struct comm){.ops = &host_ops, .rank = -1, .size = num_members};
    for (int32_t i = 0; i < num_members; i++) {
        ASSERT(members[i] >= 0 && members[i] < w->base.num_ranks);
        ASSERT(i == 0 || members[i] > members[i - 1]);
        g->members[i] = members[i];
        g->base.rank = members[i] == w->base.rank ? i : g->base.rank;
    }
    ASSERT(g->base.rank >= 0);
    g->dev = dev;
    g->segment = w->segment;
    g->world_rank = w->base.rank;
    g->hosts = w->hosts;
    g->turns = &w->turns;
    g->deadline_ns = w->deadline_ms * 1000000;
    g->spins = w->spins;
    if (num_members > 1 && group_join(w, g, err) != 0) {
        free(g);
        return -1;
    }
    *out = &g->base;
    return 0;
}

void comm_host_comm_name(struct comm *c, const char *name, bool background)
{
    struct host_group *g = (struct host_group *)c;
    snprintf(g->name, sizeof g->name, "%s", name);
    if (g->slot) {
        segment_name(&g->slot->members[g->base.rank], name, background);
    }
}

/* ---- as any world -----------------------------------------------------------------------------
 */

struct comm_world *comm_host_as_world(struct comm_host_world *w)
{
    return w ? &w->base : NULL;
}

static void world_close(struct comm_world *w)
{
    comm_host_close((struct comm_host_world *)w);
}

static int world_comm_new(struct comm_world *w, struct device *dev, const int32_t *members,
                          int32_t num, const char *name, bool background, struct comm **out,
                          struct error *err)
{
    if (comm_host_comm_new((struct comm_host_world *)w, dev, members, num, out, err) != 0) {
        return -1;
    }
    comm_host_comm_name(*out, name, background);
    return 0;
}

static void world_abort(struct comm_world *w, const char *reason)
{
    comm_host_abort((struct comm_host_world *)w, reason);
}

static void *world_alloc(struct comm_world *w, size_t bytes)
{
    return comm_host_alloc((struct comm_host_world *)w, bytes);
}

static const struct comm_world_ops world_ops = {
    .name = "host",
    .close = world_close,
    .comm_new = world_comm_new,
    .abort = world_abort,
    .alloc = world_alloc,
};
