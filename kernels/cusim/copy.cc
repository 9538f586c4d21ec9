/* cp.async: copies in flight. The hardware may make one at any moment between its start and the
 * wait for its group. Until it has landed nobody may read what was there, so there are NaNs. */
#include "kernels/cusim/block_state.h"
#include "kernels/cusim/schedule.h"
#include "kernels/cusim/tsan.h"

namespace cusim
{

#define COPY_BYTES 16
#define MAX_COPIES (1 << 16)

struct copy {
    void *dst;
    const void *src;
    bool full, landed;
    int group;
    int next;
};

static struct copy copies[MAX_COPIES];
static int first_free, num_used;

void copies_reset()
{
    first_free = -1;
    num_used = 0;
}

static int copy_new()
{
    if (first_free >= 0) {
        int i = first_free;
        first_free = copies[i].next;
        return i;
    }
    if (num_used == MAX_COPIES) {
        fail("more than %d copies in flight in a block", MAX_COPIES);
    }
    return num_used++;
}

/* Those that `lands` says, in any order, since groups alone are ordered. */
template <class F> static void land(F lands)
{
    struct thread *th = &block.threads[block.current];
    int *link = &th->first_copy;
    while (*link >= 0) {
        int i = *link;
        struct copy *c = &copies[i];
        if (!lands(c)) {
            link = &c->next;
            continue;
        }
        if (!c->landed) {
            copy_land(c->dst, c->src, c->full);
        }
        *link = c->next;
        c->next = first_free;
        first_free = i;
    }
}

void copy_async(void *dst, const void *src, bool full, const char *file, int line)
{
    if (((uintptr_t)dst | (full ? (uintptr_t)src : 0)) % COPY_BYTES != 0) {
        fail("%s:%d: cp.async of 16 bytes: %p to %p isn't aligned to 16", file, line, src, dst);
    }
    bool early = schedule_now()->threads == CUSIM_REVERSE;
    /* ThreadSanitizer sees it at both ends of the time that it may take. */
    if (early || TSAN_ON) {
        copy_land(dst, src, full);
    } else {
        for (int i = 0; i < COPY_BYTES; i++) {
            ((volatile unsigned char *)dst)[i] = 0xFF;
        }
    }
    struct thread *th = &block.threads[block.current];
    int i = copy_new();
    copies[i] = {dst, src, full, early && !TSAN_ON, th->copy_group, th->first_copy};
    th->first_copy = i;
}

void copy_commit()
{
    block.threads[block.current].copy_group++;
}

void copy_wait(int num_open)
{
    int open = block.threads[block.current].copy_group - num_open;
    land([open](const struct copy *c) { return c->group < open; });
}

void copies_drift()
{
    if (!TSAN_ON && schedule_now()->threads == CUSIM_RANDOM) {
        land([](const struct copy *) { return schedule_draw(4) == 0; });
    }
}

void copies_check_none()
{
    if (block.threads[block.current].first_copy >= 0) {
        fail("returns with asynchronous copies that nobody has waited for");
    }
}

} // namespace cusim
