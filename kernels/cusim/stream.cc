/* cudart's calls about streams. */
#include "kernels/cusim/stream.h"

#include <stdlib.h>

#include "kernels/cusim/memory.h"
#include "kernels/cusim/tsan.h"

using namespace cusim;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

/* Priorities beyond the range are taken for its ends. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    struct machine_guard guard;
    if (flags != cudaStreamNonBlocking) {
        fail("cudaStreamCreateWithFlags: streams are cudaStreamNonBlocking here: others wait for "
             "CUDA's own stream");
    }
    struct CUstream_st *s = (struct CUstream_st *)calloc(1, sizeof *s);
    s->device = machine_device();
    s->priority = priority > 0 ? 0 : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority;
    stream_begin(s);
    s->next = streams;
    streams = s;
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
    struct machine_guard guard;
    *priority = stream_check(s, "cudaStreamGetPriority")->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    struct machine_guard guard;
    stream_check(s, "cudaStreamSynchronize");
    if (s->capture) {
        return machine_error(cudaErrorStreamCaptureUnsupported);
    }
    counts.syncs++;
    machine_drive(s, stream_is_empty, s);
    tsan_acquire(s->token);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    struct machine_guard guard;
    stream_check(s, "cudaStreamDestroy");
    machine_drive(s, stream_is_empty, s);
    struct CUstream_st **link = &streams;
    while (*link != s) {
        link = &(*link)->next;
    }
    *link = s->next;
    stream_end(s);
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    struct machine_guard guard;
    stream_check(s, "cudaStreamQuery");
    if (s->capture) {
        return machine_error(cudaErrorStreamCaptureUnsupported);
    }
    machine_nudge();
    if (s->first) {
        return cudaErrorNotReady;
    }
    tsan_acquire(s->token);
    return cudaSuccess;
}

static bool all_empty(void *)
{
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (s->device == machine_device() && s->first) {
            return false;
        }
    }
    return true;
}

cudaError_t cudaDeviceSynchronize(void)
{
    struct machine_guard guard;
    counts.syncs++;
    machine_drive(nullptr, all_empty, nullptr);
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (s->device == machine_device()) {
            tsan_acquire(s->token);
        }
    }
    return cudaSuccess;
}

struct host_function {
    cudaHostFn_t fn;
    void *arg;
};

static enum progress run_host_function(const void *args)
{
    const struct host_function *h = (const struct host_function *)args;
    memory_close();
    h->fn(h->arg);
    memory_open();
    return WORK_DONE;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    struct host_function h = {fn, arg};
    machine_enqueue(s, "cudaLaunchHostFunc", run_host_function, &h, sizeof h);
    return cudaSuccess;
}

} // extern "C"
