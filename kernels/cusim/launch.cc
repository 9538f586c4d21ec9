/* Kernels as work of a stream. What CUDA makes an error is one; what our rules forbid ends the
 * program with words. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cusim/memory.h"
#include "kernels/cusim/stream.h"

namespace cusim
{

/* The kernel's arguments follow. */
struct alignas(16) launched {
    struct launch launch;
};

static enum progress run_launched(const void *args)
{
    const struct launched *l = (const struct launched *)args;
    struct launch launch = l->launch;
    launch.args = l + 1;
    grid_run(&launch, stream_lanes(stream_running()));
    return WORK_DONE;
}

static bool shape_fits(const struct launch *l)
{
    uint64_t num_threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    return num_threads >= 1 && num_threads <= 1024 && l->block.z <= 64 && l->grid.x >= 1 &&
           l->grid.x <= 0x7fffffff && l->grid.y >= 1 && l->grid.y <= 65535 && l->grid.z >= 1 &&
           l->grid.z <= 65535;
}

void machine_launch(struct launch l, const void *kernel, cudaStream_t s, const void *args,
                    size_t bytes)
{
    struct machine_guard guard;
    stream_check(s, l.name);
    if (!shape_fits(&l)) {
        machine_error(cudaErrorInvalidConfiguration);
        return;
    }
    if (l.block.x % 32 != 0) {
        fail("kernel %s: blocks of %u threads in x: only multiples of 32 are meant", l.name,
             l.block.x);
    }
    if (l.dynamic_bytes > memory_dynamic_max(kernel)) {
        machine_error(cudaErrorInvalidValue);
        return;
    }
    counts.launches++;
    struct launched *copy = (struct launched *)malloc(sizeof *copy + bytes);
    copy->launch = l;
    memcpy((void *)(copy + 1), args, bytes);
    struct op op = {};
    op.what = l.name;
    op.fn = run_launched;
    op.args = copy;
    op.bytes = sizeof *copy + bytes;
    stream_push(s, &op);
}

} // namespace cusim
