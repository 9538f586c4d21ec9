/* Copies and fills. What isn't pinned isn't asynchronous: to the device it is read before the call
 * returns, to the host it has arrived before the call returns; cusim_counted says how often. */
#include <stdlib.h>
#include <string.h>
#include "kernels/cusim/memory.h"
#include "kernels/cusim/stream.h"
#include "kernels/cusim/tsan.h"

using namespace cusim;

struct copy_args {
    void *dst;
    const void *src;
    size_t bytes;
    void *staged; /* ours: src itself, from memory that isn't pinned */
};

static enum progress run_copy(const void *args)
{
    const struct copy_args *c = (const struct copy_args *)args;
    memmove(c->dst, c->src, c->bytes);
    free(c->staged);
    return WORK_DONE;
}

struct fill_args {
    void *dst;
    int value;
    size_t bytes;
};

static enum progress run_fill(const void *args)
{
    const struct fill_args *f = (const struct fill_args *)args;
    memset(f->dst, f->value, f->bytes);
    return WORK_DONE;
}

/* What `kind` says must be so: CUDA takes the pointers at their word. */
static void check_kind(enum cudaMemcpyKind kind, enum place dst, enum place src)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault &&
        (to_device != (dst == PLACE_DEVICE) || from_device != (src == PLACE_DEVICE))) {
        static const char *const kinds[] = {"host to host", "host to device", "device to host",
                                            "device to device", "default"};
        fail("cudaMemcpyAsync: %s, but the source is %s memory and the target %s memory",
             kinds[kind], src == PLACE_DEVICE ? "device" : "host",
             dst == PLACE_DEVICE ? "device" : "host");
    }
}

extern "C" {

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    struct machine_guard guard;
    stream_check(s, "cudaMemcpyAsync");
    if (bytes == 0) {
        return cudaSuccess;
    }
    enum place to = memory_place(dst, bytes, "cudaMemcpyAsync's target");
    enum place from = memory_place(src, bytes, "cudaMemcpyAsync's source");
    check_kind(kind, to, from);
    if (s->capture && (to == PLACE_PAGEABLE || from == PLACE_PAGEABLE)) {
        return machine_error(cudaErrorStreamCaptureUnsupported);
    }
    struct copy_args c = {dst, src, bytes, nullptr};
    if (from == PLACE_PAGEABLE) {
        c.staged = malloc(bytes);
        memcpy(c.staged, src, bytes);
        c.src = c.staged;
    }
    machine_enqueue(s, "cudaMemcpyAsync", run_copy, &c, sizeof c);
    counts.pageable_copies += from == PLACE_PAGEABLE || to == PLACE_PAGEABLE;
    if (to == PLACE_PAGEABLE) {
        machine_drive(s, stream_is_empty, s);
        tsan_acquire(s->token);
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s)
{
    struct machine_guard guard;
    machine_check_range(dst, bytes, "cudaMemsetAsync");
    struct fill_args f = {dst, value, bytes};
    machine_enqueue(s, "cudaMemsetAsync", run_fill, &f, sizeof f);
    return cudaSuccess;
}

} // extern "C"
