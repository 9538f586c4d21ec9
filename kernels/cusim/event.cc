/* Events: a record is work of its stream, a wait is work of another that isn't ready before. */
#include <stdlib.h>

#include "kernels/cusim/stream.h"
#include "kernels/cusim/tsan.h"

using namespace cusim;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    struct machine_guard guard;
    struct CUevent_st *e = (struct CUevent_st *)calloc(1, sizeof *e);
    e->has_time = !(flags & cudaEventDisableTiming);
    *out = e;
    return cudaSuccess;
}

/* The last record goes on; nobody but its waiters knows it any more. */
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    struct machine_guard guard;
    record_put(e->last);
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    struct machine_guard guard;
    stream_check(s, "cudaEventRecord");
    record_put(e->last);
    e->last = stream_push_record(s);
    return cudaSuccess;
}

/* An event that was never recorded holds nobody up: so CUDA says. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    struct machine_guard guard;
    stream_check(s, "cudaStreamWaitEvent");
    if (e->last) {
        stream_push_wait(s, e->last);
    }
    return cudaSuccess;
}

static bool has_fired(void *r)
{
    return ((struct record *)r)->fired;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    struct machine_guard guard;
    if (e->last && e->last->graph) {
        return machine_error(cudaErrorCapturedEvent);
    }
    if (e->last) {
        counts.syncs++;
        e->last->num_users++;
        struct record *r = e->last;
        machine_drive(nullptr, has_fired, r);
        tsan_acquire(r->token);
        record_put(r);
    }
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    struct machine_guard guard;
    if (e->last && e->last->graph) {
        return machine_error(cudaErrorCapturedEvent);
    }
    machine_nudge();
    if (e->last && !e->last->fired) {
        return cudaErrorNotReady;
    }
    if (e->last) {
        tsan_acquire(e->last->token);
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    struct machine_guard guard;
    if (!a->has_time || !b->has_time || !a->last || !b->last) {
        return machine_error(cudaErrorInvalidResourceHandle);
    }
    if (!a->last->fired || !b->last->fired) {
        return machine_error(cudaErrorNotReady);
    }
    *ms = (float)((b->last->time_s - a->last->time_s) * 1e3);
    return cudaSuccess;
}

} // extern "C"
