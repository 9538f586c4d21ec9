/* Streams, events, and what has failed in them without CUDA's knowing. */
#include <stdlib.h>

#include "kernels/cuda/device.h"
#include "kernels/workspace.h"

struct event {
    cudaEvent_t cuda;
    bool is_recorded;
};

/* A queue is served before compute: its work is short, and others wait for it. */
static int stream_start(struct cuda_device *d, enum stream_kind kind, struct stream *s,
                        struct error *err)
{
    if (cuda_use(&d->base, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaStreamCreateWithPriority(&s->cuda, cudaStreamNonBlocking,
                                          kind == STREAM_QUEUE ? d->high : d->low),
             "new stream");
    CUDA_TRY(cudaMalloc(&s->column_parts, WORKSPACE_CUDA_COLUMN_SUM), "workspace of sums");
    if (kind != STREAM_QUEUE) {
        CUDA_TRY(cudaMalloc(&s->workspace, CUDA_GEMM_WORKSPACE), "workspace of matrix products");
    }
    return 0;
}

int cuda_stream_new(struct device *dev, enum stream_kind kind, struct stream **out,
                    struct error *err)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "new stream: no memory");
    }
    s->dev = cuda_of(dev);
    if (stream_start(s->dev, kind, s, err) != 0) {
        cuda_stream_free(dev, s);
        return -1;
    }
    pthread_mutex_lock(&s->dev->lock);
    s->next = s->dev->streams;
    s->dev->streams = s;
    pthread_mutex_unlock(&s->dev->lock);
    *out = s;
    return 0;
}

/* One of the device's, of which s itself may be no more. Its lock is held. */
static struct stream **find(struct cuda_device *d, const struct stream *s)
{
    struct stream **link = &d->streams;
    while (*link && *link != s) {
        link = &(*link)->next;
    }
    return link;
}

/* From here on nobody else comes to it. */
static void leave(struct cuda_device *d, struct stream *s)
{
    pthread_mutex_lock(&d->lock);
    struct stream **link = find(d, s);
    if (*link) {
        *link = s->next;
    }
    d->failed = d->failed == s ? NULL : d->failed;
    pthread_mutex_unlock(&d->lock);
}

void cuda_stream_free(struct device *dev, struct stream *s)
{
    if (!s) {
        return;
    }
    cuda_use(dev, NULL);
    if (s->cuda) {
        cudaStreamSynchronize(s->cuda);
        cudaStreamDestroy(s->cuda);
    }
    cudaFree(s->workspace);
    cudaFree(s->column_parts);
    cudaGetLastError();
    leave(s->dev, s);
    free(s);
}

cudaStream_t cuda_stream_of(struct stream *s)
{
    return s->cuda;
}

/* ---- failures ---- */

void cuda_stream_fail(struct device *dev, struct stream *s, const struct error *why)
{
    struct cuda_device *d = cuda_of(dev);
    pthread_mutex_lock(&d->lock);
    bool is_there = *find(d, s) != NULL;
    if (is_there && !s->has_failed) {
        s->has_failed = true;
        s->failure = *why;
    }
    if (is_there && !d->failed) {
        d->failed = s;
        d->failure = *why;
    }
    pthread_mutex_unlock(&d->lock);
}

void cuda_ask_if_lost(struct device *dev, cuda_lost_fn fn, void *arg)
{
    struct cuda_device *d = cuda_of(dev);
    pthread_mutex_lock(&d->lock);
    d->lost = fn;
    d->lost_arg = arg;
    pthread_mutex_unlock(&d->lock);
}

/* What s has to tell, or another stream of the device where it says nothing, or who was named to
 * cuda_ask_if_lost. s may be NULL. */
static int hear(struct cuda_device *d, struct stream *s, struct error *err)
{
    const struct error *told = NULL;
    pthread_mutex_lock(&d->lock);
    if (s && s->has_failed) {
        told = &s->failure;
        s->has_failed = false;
        d->failed = d->failed == s ? NULL : d->failed;
    } else if (d->failed) {
        told = &d->failure;
    }
    if (told && err) {
        *err = *told;
    }
    bool lost = told || (d->lost && d->lost(d->lost_arg, err));
    pthread_mutex_unlock(&d->lock);
    return lost ? -1 : 0;
}

int cuda_stream_sync(struct device *dev, struct stream *s, struct error *err)
{
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    cudaError_t e = cudaStreamSynchronize(s->cuda);
    if (hear(cuda_of(dev), s, err) != 0) {
        return -1;
    }
    CUDA_TRY(e, "stream");
    return 0;
}

/* ---- events ---- */

int cuda_event_new(struct device *dev, struct event **out, struct error *err)
{
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    struct event *e = calloc(1, sizeof *e);
    if (!e) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "new event: no memory");
    }
    /* Who waits for it sleeps: the processor is for other ranks. */
    cudaError_t rc =
        cudaEventCreateWithFlags(&e->cuda, cudaEventDisableTiming | cudaEventBlockingSync);
    if (rc != cudaSuccess) {
        free(e);
        return cuda_error(err, rc, "new event");
    }
    *out = e;
    return 0;
}

void cuda_event_free(struct device *dev, struct event *e)
{
    if (e) {
        cuda_use(dev, NULL);
        cudaEventDestroy(e->cuda);
        free(e);
    }
}

int cuda_event_record(struct device *dev, struct event *e, struct stream *s, struct error *err)
{
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaEventRecord(e->cuda, s->cuda), "record of an event");
    e->is_recorded = true;
    return 0;
}

int cuda_stream_wait(struct device *dev, struct stream *s, struct event *e, struct error *err)
{
    if (!e->is_recorded) {
        return 0;
    }
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaStreamWaitEvent(s->cuda, e->cuda, 0), "wait for an event");
    return 0;
}

int cuda_event_sync(struct device *dev, struct event *e, struct error *err)
{
    if (!e->is_recorded) {
        return 0;
    }
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    cudaError_t rc = cudaEventSynchronize(e->cuda);
    if (hear(cuda_of(dev), NULL, err) != 0) {
        return -1;
    }
    CUDA_TRY(rc, "event");
    return 0;
}
