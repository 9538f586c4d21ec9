#include "kernels/host/device.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/host/stream.h"

/* Copies below this size are not worth waking a thread. */
#define COPY_BLOCK ((size_t)1 << 20)

struct copy_args {
    void *dst;
    const void *src; /* NULL: zero */
    size_t bytes;
};

static struct host_device *host_of(struct device *dev)
{
    return (struct host_device *)dev;
}

static void device_close(struct device *dev)
{
    struct host_device *d = host_of(dev);
    pool_free(d->pool);
    host_heap_free(d->heap);
    free(d);
}

static void *device_alloc(struct device *dev, size_t bytes, enum mem_kind kind)
{
    (void)kind;
    return host_alloc(host_of(dev)->heap, bytes);
}

static void device_free(struct device *dev, void *mem)
{
    host_release(host_of(dev)->heap, mem);
}

static int64_t device_mem_peak(struct device *dev)
{
    return (int64_t)host_heap_peak(host_of(dev)->heap);
}

static void copy_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct copy_args *a = arg;
    size_t begin = (size_t)task * COPY_BLOCK;
    size_t n = a->bytes - begin < COPY_BLOCK ? a->bytes - begin : COPY_BLOCK;
    if (a->src) {
        memcpy((char *)a->dst + begin, (const char *)a->src + begin, n);
    } else {
        memset((char *)a->dst + begin, 0, n);
    }
}

static void copy_loop(struct pool *pool, const void *args)
{
    struct copy_args a = *(const struct copy_args *)args;
    pool_run(pool, (int64_t)((a.bytes + COPY_BLOCK - 1) / COPY_BLOCK), copy_task, &a);
}

static int submit_copy(struct device *dev, struct stream *s, const char *op,
                       const struct copy_args *a, struct error *err)
{
    struct host_work work = {
        .op = op, .loop = copy_loop, .pool = host_of(dev)->pool, .args = a, .bytes = sizeof *a};
    return host_stream_submit(s, &work, err);
}

static int device_copy(struct device *dev, struct stream *s, void *dst, const void *src,
                       size_t bytes, enum copy_kind kind, struct error *err)
{
    (void)kind;
    ASSERT(bytes == 0 || (dst && src));
    return submit_copy(dev, s, "copy", &(struct copy_args){dst, src, bytes}, err);
}

static int device_zero(struct device *dev, struct stream *s, void *dst, size_t bytes,
                       struct error *err)
{
    return submit_copy(dev, s, "zero", &(struct copy_args){dst, NULL, bytes}, err);
}

static int device_stream_new(struct device *dev, enum stream_kind kind, struct stream **out,
                             struct error *err)
{
    (void)dev;
    return host_stream_new(out, kind, err);
}

static void device_stream_free(struct device *dev, struct stream *s)
{
    (void)dev;
    host_stream_free(s);
}

static int device_stream_sync(struct device *dev, struct stream *s, struct error *err)
{
    (void)dev;
    return host_stream_sync(s, err);
}

static int device_event_new(struct device *dev, struct event **out, struct error *err)
{
    (void)dev;
    return host_event_new(out, err);
}

static void device_event_free(struct device *dev, struct event *e)
{
    (void)dev;
    host_event_free(e);
}

static int device_event_record(struct device *dev, struct event *e, struct stream *s,
                               struct error *err)
{
    (void)dev;
    return host_event_record(e, s, err);
}

static int device_stream_wait(struct device *dev, struct stream *s, struct event *e,
                              struct error *err)
{
    (void)dev;
    return host_stream_wait(s, e, err);
}

static int device_event_sync(struct device *dev, struct event *e, struct error *err)
{
    (void)dev;
    return host_event_sync(e, err);
}

static int device_host_call(struct device *dev, struct stream *s, device_call_fn fn,
                            const void *args, size_t bytes, struct error *err)
{
    (void)dev;
    struct host_work work = {.op = "host call", .call = fn, .args = args, .bytes = bytes};
    return host_stream_submit(s, &work, err);
}

static int device_num_threads(struct device *dev)
{
    return pool_num_threads(host_of(dev)->pool);
}

static const struct device_ops host_ops = {
    .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .mem_peak = device_mem_peak,
    .copy = device_copy,
    .zero = device_zero,
    .stream_new = device_stream_new,
    .stream_free = device_stream_free,
    .stream_sync = device_stream_sync,
    .event_new = device_event_new,
    .event_free = device_event_free,
    .event_record = device_event_record,
    .stream_wait = device_stream_wait,
    .event_sync = device_event_sync,
    .host_call = device_host_call,
    .num_threads = device_num_threads,
};

int host_device_open(struct device **out, const char *name, int num_threads,
                     const struct loops *const loops[HOST_DTYPES], struct error *err)
{
    if (num_threads < 1 || num_threads > 1024) {
        return error_set(err, ERR_INVALID_ARGUMENT, "device %s: %d threads, not 1..1024", name,
                         num_threads);
    }
    struct host_device *d = calloc(1, sizeof *d);
    if (!d || !(d->heap = host_heap_new())) {
        free(d);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "device %s: no memory", name);
    }
    if (pool_new(&d->pool, num_threads, err) != 0) {
        host_heap_free(d->heap);
        free(d);
        return error_wrap(err, "device %s", name);
    }
    d->ops = host_ops;
    d->ops.name = name;
    d->base.ops = &d->ops;
    memcpy(d->loops, loops, sizeof d->loops);
    *out = &d->base;
    return 0;
}
