/* What runs a grid: what the simulator's own files know of it. Files that hold kernels see
 * cusim.h alone.
 *
 * One grid runs at a time in a process (the machine's lock sees to it), so all state of the
 * running block is global. On a fiber nothing is allocated: ThreadSanitizer would see it. */
#ifndef TANDEM_KERNELS_CUSIM_ENGINE_H
#define TANDEM_KERNELS_CUSIM_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

namespace cusim
{

/* The simulated thread that runs. */
struct where {
    uint3 tid, bid;
    dim3 bdim, gdim;
    int lane;
    bool in_kernel;
};
extern struct where here;

/* Says where, and what, and ends the program. */
[[noreturn]] void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

struct launch {
    dim3 grid, block;
    size_t dynamic_bytes;
    const char *name; /* static */
    void (*run)(const void *args);
    const void *args;
};

/* Fibers and shared memory of one stream: what lies in them is ordered as the stream is, so that
 * ThreadSanitizer takes two streams for what they are. */
struct lanes;
/* Both on the stream's own thread, as ThreadSanitizer sees it. */
struct lanes *lanes_new();
void lanes_free(struct lanes *l);

void grid_run(const struct launch *l, struct lanes *lanes);

/* Shared memory of the running block. */
void shared_begin_block(size_t dynamic_bytes, const char *kernel, char *area);
void shared_end_block();
#define SHARED_MAX ((size_t)227 << 10)
#define SHARED_STATIC_MAX ((size_t)48 << 10)

/* cp.async of 16 bytes: the copy itself, seen by sanitizers as the running thread's. */
void copy_land(void *dst, const void *src, bool full);

} // namespace cusim

#endif
