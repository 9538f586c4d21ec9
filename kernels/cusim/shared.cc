/* Shared memory: fresh for each block, and full of what is no number (0xFF bytes: NaN, -1). Under
 * AddressSanitizer every array is an allocation of its own, with guards around it. */
#include <stdlib.h>

#include "kernels/cusim/block.h"
#include "kernels/cusim/engine.h"

namespace cusim
{

#define MAX_ARRAYS 64

static struct {
    uint64_t serial; /* of the running block */
    const char *kernel;
    char *area;
    size_t used, num_static, dynamic_bytes;
    void *dynamic;
    void *arrays[MAX_ARRAYS];
    int num_arrays;
} now;

/* A loop, and volatile: neither the compiler nor a sanitizer is to take it for a memset. */
static void poison(void *mem, size_t bytes)
{
    volatile uint64_t *word = (volatile uint64_t *)mem;
    for (size_t i = 0; i < bytes / 8; i++) {
        word[i] = UINT64_MAX;
    }
    for (size_t i = bytes / 8 * 8; i < bytes; i++) {
        ((volatile unsigned char *)mem)[i] = 0xFF;
    }
}

static void *array_new(size_t bytes, size_t align)
{
    align = align < 16 ? 16 : align;
    size_t begin = (now.used + align - 1) & ~(align - 1);
    if (begin + bytes > SHARED_MAX) {
        fail("kernel %s: %zu bytes of shared memory, a block has %zu at most", now.kernel,
             begin + bytes, SHARED_MAX);
    }
    now.used = begin + bytes;
#ifdef CUSIM_ASAN
    void *mem;
    if (now.num_arrays == MAX_ARRAYS || posix_memalign(&mem, align, bytes) != 0) {
        fail("kernel %s: no room for a shared array", now.kernel);
    }
    now.arrays[now.num_arrays++] = mem;
#else
    void *mem = now.area + begin;
#endif
    poison(mem, bytes);
    return mem;
}

void shared_begin_block(size_t dynamic_bytes, const char *kernel, char *area)
{
    now.serial++;
    now.kernel = kernel;
    now.area = area;
    now.used = 0;
    now.num_static = 0;
    now.dynamic = nullptr;
    now.dynamic_bytes = dynamic_bytes;
}

void shared_end_block()
{
    for (int i = 0; i < now.num_arrays; i++) {
        free(now.arrays[i]);
    }
    now.num_arrays = 0;
}

void *shared_array(struct shared_slot *slot, size_t bytes, size_t align)
{
    if (slot->serial != now.serial) {
        now.num_static += bytes;
        if (now.num_static > SHARED_STATIC_MAX) {
            fail("kernel %s: %zu bytes of static shared memory, at most %zu compile", now.kernel,
                 now.num_static, SHARED_STATIC_MAX);
        }
        slot->mem = array_new(bytes, align);
        slot->serial = now.serial;
    }
    return slot->mem;
}

void *shared_dynamic()
{
    if (!now.dynamic) {
        if (now.dynamic_bytes == 0) {
            fail("kernel %s: uses dynamic shared memory, launched with none", now.kernel);
        }
        now.dynamic = array_new(now.dynamic_bytes, 128);
    }
    return now.dynamic;
}

} // namespace cusim
