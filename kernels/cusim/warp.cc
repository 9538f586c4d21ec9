/* What the lanes of a warp do together. A meeting orders no memory, but for __syncwarp: so CUDA
 * says, and so ThreadSanitizer is told. */
#include "kernels/cusim/block_state.h"
#include "kernels/cusim/tsan.h"

namespace cusim
{

static const char *warp_op_name(enum warp_op op)
{
    static const char *const names[] = {"a shuffle", "__syncwarp", "a vote", "an mma",
                                        "an ldmatrix"};
    return names[op];
}

unsigned warp_lanes()
{
    return block.warps[block.threads[block.current].warp].exist;
}

static struct meeting *find_meeting(struct warp *w, unsigned mask)
{
    struct meeting *idle = nullptr;
    for (int i = 0; i < MAX_MASKS; i++) {
        struct meeting *m = &w->meetings[i];
        if (m->mask == mask) {
            return m;
        }
        bool busy = m->mask && (m->arrived || m->unread[0] || m->unread[1]);
        idle = busy ? idle : m;
    }
    if (!idle) {
        fail("more than %d masks at once in a warp", MAX_MASKS);
    }
    idle->mask = mask;
    idle->arrived = 0;
    idle->turn = 0;
    idle->unread[0] = idle->unread[1] = 0;
    return idle;
}

static struct meeting *enter(unsigned mask, enum warp_op op, const char *file, int line)
{
    const struct thread *th = &block.threads[block.current];
    struct warp *w = &block.warps[th->warp];
    if (!(mask >> th->lane & 1)) {
        fail("%s:%d: lane %d isn't in the mask %08x", file, line, th->lane, mask);
    }
    if (mask & w->done) {
        fail("%s:%d: the mask %08x names lanes that have returned (%08x)", file, line, mask,
             mask & w->done);
    }
    struct meeting *m = find_meeting(w, mask);
    if (!m->arrived) {
        m->op = op;
        m->file = file;
        m->line = line;
        m->token[m->turn] = op == WARP_SYNC ? tsan_token() : nullptr;
    } else if (m->op != op || m->line != line) {
        fail("divergent warp: %s at %s:%d, lanes %08x are in %s at %s:%d", warp_op_name(op), file,
             line, m->arrived, warp_op_name(m->op), m->file, m->line);
    }
    return m;
}

const unsigned char *warp_exchange(unsigned mask, enum warp_op op, const void *value, int bytes,
                                   const char *file, int line)
{
    struct meeting *m = enter(mask, op, file, line);
    struct thread *th = &block.threads[block.current];
    const struct warp *w = &block.warps[th->warp];
    int turn = m->turn;
    void *token = m->token[turn];
    unsigned mine = 1u << th->lane;
    for (int i = 0; i < bytes; i++) {
        m->table[turn][th->lane][i] = ((const unsigned char *)value)[i];
    }
    tsan_release(token);
    m->arrived |= mine;
    if (m->arrived == (mask & w->exist)) {
        m->unread[turn] = m->arrived;
        m->arrived = 0;
        m->turn = 1 - turn;
        block_wake(th->warp * WARP_SIZE, WARP_SIZE, m->unread[turn]);
    }
    th->mask = mask;
    block_wait(file, line);
    th->mask = 0;
    m->unread[turn] &= ~mine;
    tsan_acquire(token);
    return m->table[turn][0];
}

} // namespace cusim
