#include "kernels/cusim/lanes.h"

#include <sys/mman.h>

#include "kernels/cusim/engine.h"
#include "kernels/cusim/machine.h"
#include "kernels/cusim/tsan.h"

namespace cusim
{

static void *reserve(size_t bytes)
{
    void *mem = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mem == MAP_FAILED) {
        fail("no memory for the simulator (%zu bytes)", bytes);
    }
    return mem;
}

static struct lanes *unused;

/* A thread is expensive to ThreadSanitizer, so lanes outlive their stream; elsewhere all streams
 * have the same. */
struct lanes *lanes_new()
{
    struct lanes *l = unused;
    if (!l) {
        l = (struct lanes *)reserve(sizeof *l);
        l->areas = (char *)reserve(NUM_AREAS * SHARED_MAX);
        unused = l;
        counts.lanes++;
    }
    if (TSAN_ON) {
        unused = l->next;
    }
    tsan_acquire(l->token);
    return l;
}

void lanes_free(struct lanes *l)
{
    if (!l) {
        return;
    }
    tsan_release(l->token);
    if (TSAN_ON) {
        l->next = unused;
        unused = l;
    }
}

void lanes_reserve(struct lanes *l, int num_threads)
{
    int num = num_threads * (TSAN_ON ? NUM_HALVES : 1);
    while (l->num_fibers < num) {
        struct fiber *f = &l->fibers[l->num_fibers++];
        fiber_init(f);
        l->idle[l->num_idle++] = f;
    }
}

char *lanes_area(struct lanes *l, uint64_t block)
{
    return l->areas + (TSAN_ON ? block % NUM_AREAS : 0) * SHARED_MAX;
}

void *lanes_token_before(struct lanes *l, uint64_t block)
{
    return l->area_tokens[block % NUM_AREAS][(block / NUM_AREAS + 1) % 2];
}

void *lanes_token_after(struct lanes *l, uint64_t block)
{
    return l->area_tokens[block % NUM_AREAS][block / NUM_AREAS % 2];
}

struct fiber *lanes_take(struct lanes *l, uint64_t block, int t, int num_threads)
{
    if (TSAN_ON) {
        uint64_t turned = (block * 37 + (uint64_t)t) % (uint64_t)num_threads;
        return &l->fibers[block % NUM_HALVES * (uint64_t)num_threads + turned];
    }
    return l->idle[--l->num_idle];
}

void lanes_give(struct lanes *l, struct fiber *f)
{
    if (!TSAN_ON) {
        l->idle[l->num_idle++] = f;
    }
}

} // namespace cusim
