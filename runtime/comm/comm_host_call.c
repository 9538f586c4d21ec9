/* The collectives themselves, on the thread of their stream. Three ways, and all members see from
 * the call lines which one it is:
 *
 *   small      everyone puts its data into its staging before the one barrier, then reads all
 *   zero-copy  every buffer that others need lies in its owner's area: enter, work, leave
 *   staged     through two chunks by turns, one barrier a chunk
 *
 * A fold always takes the members in rank order, so the way doesn't change the bits. */
#include "runtime/comm/comm_host_group.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/comm/comm_host_reduce.h"

static bool in_own_area(const struct host_group *g, const void *mem, size_t bytes)
{
    const struct segment_header *h = g->segment;
    const char *area = (const char *)h + segment_area_offset(h, g->world_rank);
    const char *p = mem;
    return p >= area && p < area + h->area_bytes && bytes <= (size_t)(area + h->area_bytes - p);
}

static char *small_piece(const struct host_group *g, int32_t member, uint32_t call_number)
{
    return (char *)g->staging[member] + 2 * SEGMENT_CHUNK_BYTES +
           (call_number & 1) * SEGMENT_SMALL_BYTES;
}

static char *chunk_of(const struct host_group *g, int32_t member, int64_t chunk_idx)
{
    return (char *)g->staging[member] + (size_t)(chunk_idx & 1) * SEGMENT_CHUNK_BYTES;
}

/* Fills bufs with where each member's buffer is; false = not all lie in their areas. */
static bool shared_buffers(const struct host_group *g, size_t bytes, const void **bufs)
{
    const struct segment_header *h = g->segment;
    for (int32_t i = 0; i < g->base.size; i++) {
        int64_t offset = host_group_call(g, i)->offset;
        if (offset < 0) {
            return false;
        }
        ASSERT((uint64_t)offset <= h->total_bytes && bytes <= h->total_bytes - (uint64_t)offset);
        bufs[i] = (const char *)h + offset;
    }
    return true;
}

static void copy_unless_same(void *dst, const void *src, size_t bytes)
{
    if (dst != src && bytes) {
        memcpy(dst, src, bytes);
    }
}

static struct segment_call call_line(const struct host_call *c, const void *shared, size_t bytes)
{
    const struct host_group *g = c->group;
    bool is_shared = shared && bytes > SEGMENT_SMALL_BYTES && in_own_area(g, shared, bytes);
    struct segment_call line = {
        .kind = c->kind,
        .dtype = c->dtype,
        .op = c->op,
        .root = c->root,
        .n = c->n,
        .staging_idx = g->staging_idx,
        .offset = is_shared ? (const char *)shared - (const char *)g->segment : -1,
        .turn = c->turn,
    };
    memcpy(line.what, c->what, sizeof line.what);
    return line;
}

/* ---- all_reduce -------------------------------------------------------------------------------
 */

/* Elements [begin, end) of n that are this member's share: whole cache lines. */
static void own_share(const struct host_group *g, size_t n, size_t elem, size_t *begin, size_t *end)
{
    size_t line = 64 / elem;
    size_t lines = (n + line - 1) / line;
    size_t size = (size_t)g->base.size, me = (size_t)g->base.rank;
    *begin = lines * me / size * line;
    *end = lines * (me + 1) / size * line;
    *end = *end < n ? *end : n;
    *begin = *begin < n ? *begin : n;
}

/* Folds this member's share of everybody's bufs [n] and writes it into all of them. */
static void reduce_share(const struct host_call *c, const void *const *bufs, size_t n)
{
    const struct host_group *g = c->group;
    size_t begin, end, elem = dtype_size(c->dtype);
    own_share(g, n, elem, &begin, &end);
    void *shares[COMM_HOST_MAX_RANKS];
    const void *srcs[COMM_HOST_MAX_RANKS];
    for (int32_t i = 0; i < g->base.size; i++) {
        srcs[i] = (const char *)bufs[i] + begin * elem;
        shares[i] = (void *)(uintptr_t)srcs[i];
    }
    comm_host_reduce(shares, g->base.size, srcs, g->base.size, end - begin, c->dtype, c->op);
}

static int all_reduce_staged(const struct host_call *c, const struct segment_call *line,
                             size_t bytes, struct error *err)
{
    struct host_group *g = c->group;
    size_t elem = dtype_size(c->dtype);
    int64_t num_chunks = (int64_t)((bytes + SEGMENT_CHUNK_BYTES - 1) / SEGMENT_CHUNK_BYTES);
    char *buf = c->dst;
    /* Chunk k is folded between barriers k and k + 1, so it can be fetched behind barrier k + 1. */
    for (int64_t k = 0; k < num_chunks + 2; k++) {
        if (k == num_chunks && host_group_barrier(g, line, err) != 0) {
            return -1;
        }
        if (k >= 2) {
            size_t at = (size_t)(k - 2) * SEGMENT_CHUNK_BYTES;
            size_t len = bytes - at < SEGMENT_CHUNK_BYTES ? bytes - at : SEGMENT_CHUNK_BYTES;
            memcpy(buf + at, chunk_of(g, g->base.rank, k), len);
        }
        if (k >= num_chunks) {
            continue;
        }
        size_t at = (size_t)k * SEGMENT_CHUNK_BYTES;
        size_t len = bytes - at < SEGMENT_CHUNK_BYTES ? bytes - at : SEGMENT_CHUNK_BYTES;
        memcpy(chunk_of(g, g->base.rank, k), buf + at, len);
        if (host_group_barrier(g, line, err) != 0) {
            return -1;
        }
        const void *chunks[COMM_HOST_MAX_RANKS];
        for (int32_t i = 0; i < g->base.size; i++) {
            chunks[i] = chunk_of(g, i, k);
        }
        reduce_share(c, chunks, len / elem);
    }
    return 0;
}

static int all_reduce_run(const struct host_call *c, struct error *err)
{
    struct host_group *g = c->group;
    size_t bytes = (size_t)c->n * dtype_size(c->dtype);
    struct segment_call line = call_line(c, c->dst, bytes);
    if (bytes <= SEGMENT_SMALL_BYTES) {
        copy_unless_same(small_piece(g, g->base.rank, g->num_calls + 1), c->dst, bytes);
    }
    if (host_group_enter(g, &line, err) != 0) {
        return -1;
    }
    const void *bufs[COMM_HOST_MAX_RANKS];
    if (bytes <= SEGMENT_SMALL_BYTES) {
        for (int32_t i = 0; i < g->base.size; i++) {
            bufs[i] = small_piece(g, i, g->num_calls);
        }
        void *const dst = c->dst;
        comm_host_reduce(&dst, 1, bufs, g->base.size, (size_t)c->n, c->dtype, c->op);
        return 0;
    }
    if (!shared_buffers(g, bytes, bufs)) {
        return all_reduce_staged(c, &line, bytes, err);
    }
    reduce_share(c, bufs, (size_t)c->n);
    return host_group_barrier(g, &line, err);
}

/* ---- reduce_scatter ---------------------------------------------------------------------------
 */

static int reduce_scatter_staged(const struct host_call *c, const struct segment_call *line,
                                 struct error *err)
{
    struct host_group *g = c->group;
    size_t elem = dtype_size(c->dtype), size = (size_t)g->base.size, n = (size_t)c->n;
    size_t step = SEGMENT_CHUNK_BYTES / elem / size;
    int64_t k = 0;
    for (size_t at = 0; at < n; at += step, k++) {
        size_t count = n - at < step ? n - at : step;
        char *mine = chunk_of(g, g->base.rank, k);
        for (size_t i = 0; i < size; i++) {
            memcpy(mine + i * step * elem, (const char *)c->src + (i * n + at) * elem,
                   count * elem);
        }
        if (host_group_barrier(g, line, err) != 0) {
            return -1;
        }
        const void *srcs[COMM_HOST_MAX_RANKS];
        for (int32_t i = 0; i < g->base.size; i++) {
            srcs[i] = chunk_of(g, i, k) + (size_t)g->base.rank * step * elem;
        }
        void *dst = (char *)c->dst + at * elem;
        comm_host_reduce(&dst, 1, srcs, g->base.size, count, c->dtype, COMM_SUM);
    }
    return 0;
}

static int reduce_scatter_run(const struct host_call *c, struct error *err)
{
    struct host_group *g = c->group;
    size_t part = (size_t)c->n * dtype_size(c->dtype), bytes = part * (size_t)g->base.size;
    struct segment_call line = call_line(c, c->src, bytes);
    bool small = bytes <= SEGMENT_SMALL_BYTES;
    if (small) {
        copy_unless_same(small_piece(g, g->base.rank, g->num_calls + 1), c->src, bytes);
    }
    if (host_group_enter(g, &line, err) != 0) {
        return -1;
    }
    const void *bufs[COMM_HOST_MAX_RANKS];
    if (!small && !shared_buffers(g, bytes, bufs)) {
        return reduce_scatter_staged(c, &line, err);
    }
    for (int32_t i = 0; i < g->base.size; i++) {
        const void *whole = small ? small_piece(g, i, g->num_calls) : bufs[i];
        bufs[i] = (const char *)whole + (size_t)g->base.rank * part;
    }
    void *const dst = c->dst;
    comm_host_reduce(&dst, 1, bufs, g->base.size, (size_t)c->n, c->dtype, COMM_SUM);
    return small ? 0 : host_group_barrier(g, &line, err);
}

/* ---- all_gather -------------------------------------------------------------------------------
 */

static int all_gather_staged(const struct host_call *c, const struct segment_call *line,
                             size_t part, struct error *err)
{
    struct host_group *g = c->group;
    int64_t k = 0;
    for (size_t at = 0; at < part; at += SEGMENT_CHUNK_BYTES, k++) {
        size_t len = part - at < SEGMENT_CHUNK_BYTES ? part - at : SEGMENT_CHUNK_BYTES;
        memcpy(chunk_of(g, g->base.rank, k), (const char *)c->src + at, len);
        if (host_group_barrier(g, line, err) != 0) {
            return -1;
        }
        for (int32_t i = 0; i < g->base.size; i++) {
            memcpy((char *)c->dst + (size_t)i * part + at, chunk_of(g, i, k), len);
        }
    }
    return 0;
}

static int all_gather_run(const struct host_call *c, struct error *err)
{
    struct host_group *g = c->group;
    size_t part = (size_t)c->n * dtype_size(c->dtype);
    struct segment_call line = call_line(c, c->src, part);
    bool small = part <= SEGMENT_SMALL_BYTES;
    if (small) {
        copy_unless_same(small_piece(g, g->base.rank, g->num_calls + 1), c->src, part);
    }
    if (host_group_enter(g, &line, err) != 0) {
        return -1;
    }
    const void *bufs[COMM_HOST_MAX_RANKS];
    if (!small && !shared_buffers(g, part, bufs)) {
        return all_gather_staged(c, &line, part, err);
    }
    for (int32_t i = 0; i < g->base.size; i++) {
        const void *from = small ? small_piece(g, i, g->num_calls) : bufs[i];
        copy_unless_same((char *)c->dst + (size_t)i * part, from, part);
    }
    return small ? 0 : host_group_barrier(g, &line, err);
}

/* ---- broadcast --------------------------------------------------------------------------------
 */

static int broadcast_staged(const struct host_call *c, const struct segment_call *line,
                            size_t bytes, struct error *err)
{
    struct host_group *g = c->group;
    bool is_root = g->base.rank == c->root;
    int64_t k = 0;
    for (size_t at = 0; at < bytes; at += SEGMENT_CHUNK_BYTES, k++) {
        size_t len = bytes - at < SEGMENT_CHUNK_BYTES ? bytes - at : SEGMENT_CHUNK_BYTES;
        char *chunk = chunk_of(g, c->root, k);
        if (is_root) {
            memcpy(chunk, (char *)c->dst + at, len);
        }
        if (host_group_barrier(g, line, err) != 0) {
            return -1;
        }
        if (!is_root) {
            memcpy((char *)c->dst + at, chunk, len);
        }
    }
    return 0;
}

static int broadcast_run(const struct host_call *c, struct error *err)
{
    struct host_group *g = c->group;
    size_t bytes = (size_t)c->n * dtype_size(c->dtype);
    struct segment_call line = call_line(c, c->dst, bytes);
    bool is_root = g->base.rank == c->root, small = bytes <= SEGMENT_SMALL_BYTES;
    if (small && is_root) {
        copy_unless_same(small_piece(g, c->root, g->num_calls + 1), c->dst, bytes);
    }
    if (host_group_enter(g, &line, err) != 0) {
        return -1;
    }
    int64_t offset = host_group_call(g, c->root)->offset;
    if (!small && offset < 0) {
        return broadcast_staged(c, &line, bytes, err);
    }
    if (!is_root) {
        const void *from =
            small ? small_piece(g, c->root, g->num_calls) : (const char *)g->segment + offset;
        copy_unless_same(c->dst, from, bytes);
    }
    return small ? 0 : host_group_barrier(g, &line, err);
}

/* ---- all --------------------------------------------------------------------------------------
 */

/* A group of one: nothing to wait for. */
static int alone_run(const struct host_call *c)
{
    if (c->kind == CALL_REDUCE_SCATTER || c->kind == CALL_ALL_GATHER) {
        size_t bytes = (size_t)c->n * dtype_size(c->dtype);
        if (c->dst != c->src && bytes) {
            memmove(c->dst, c->src, bytes);
        }
    }
    return 0;
}

int host_call_run(void *args, struct error *err)
{
    const struct host_call *c = args;
    if (c->kind == CALL_EXCHANGE) {
        int rc = host_exchange_run(c->group, c->messages, c->num_messages, c->turn, err);
        free(c->messages);
        return rc;
    }
    if (c->group->base.size == 1) {
        return alone_run(c);
    }
    switch (c->kind) {
    case CALL_ALL_REDUCE:
        return all_reduce_run(c, err);
    case CALL_REDUCE_SCATTER:
        return reduce_scatter_run(c, err);
    case CALL_ALL_GATHER:
        return all_gather_run(c, err);
    case CALL_BROADCAST:
        return broadcast_run(c, err);
    default: /* a barrier */
        break;
    }
    struct segment_call line = call_line(c, NULL, 0);
    return host_group_enter(c->group, &line, err);
}
