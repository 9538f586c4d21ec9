/* One device of one rank: memory, streams, events. A small table that ref, cpu and cuda fill.
 *
 * A stream is an order of work. On host backends the compute stream runs its work at once, in the
 * caller, on the device's threads; a STREAM_QUEUE has one thread of its own, which is how
 * communication overlaps. Nothing but stream_sync, event_sync and a wait of an inline stream
 * blocks the caller. Who enqueues must not count on the compute stream's being inline: on an
 * accelerator it isn't.
 *
 * Not for several threads at once, except device_host_call's closures. */
#ifndef TANDEM_KERNELS_DEVICE_H
#define TANDEM_KERNELS_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct device;
struct stream;
struct event;
struct graph;

enum stream_kind {
    STREAM_INLINE, /* compute */
    STREAM_QUEUE,  /* communication, background copies */
};
enum mem_kind {
    MEM_DEVICE, /* huge pages on hosts; touched once */
    MEM_HOST,   /* pinned where that means something */
};
enum copy_kind { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ON_DEVICE };

/* A closure of at most DEVICE_CALL_BYTES of arguments, copied when it is enqueued. */
#define DEVICE_CALL_BYTES 128
typedef int (*device_call_fn)(void *args, struct error *err);

struct device_ops {
    const char *name;
    void (*close)(struct device *dev);
    /* Zeroed. NULL = no memory. */
    void *(*alloc)(struct device *dev, size_t bytes, enum mem_kind kind);
    void (*free)(struct device *dev, void *mem);
    /* The largest number of bytes that were allocated at once, as asked for. */
    int64_t (*mem_peak)(struct device *dev);
    /* Host memory is read and written when s comes to it: until then src stays as it is. */
    int (*copy)(struct device *dev, struct stream *s, void *dst, const void *src, size_t bytes,
                enum copy_kind kind, struct error *err);
    int (*zero)(struct device *dev, struct stream *s, void *dst, size_t bytes, struct error *err);
    int (*stream_new)(struct device *dev, enum stream_kind kind, struct stream **out,
                      struct error *err);
    void (*stream_free)(struct device *dev, struct stream *s);
    /* Waits for all work; returns the first error of it since the last sync. */
    int (*stream_sync)(struct device *dev, struct stream *s, struct error *err);
    int (*event_new)(struct device *dev, struct event **out, struct error *err);
    void (*event_free)(struct device *dev, struct event *e);
    /* The event fires when the work that is in s now is done; reusable. */
    int (*event_record)(struct device *dev, struct event *e, struct stream *s, struct error *err);
    /* Later work in s starts after the event's latest record has fired. */
    int (*stream_wait)(struct device *dev, struct stream *s, struct event *e, struct error *err);
    /* The caller waits until the event's latest record has fired; at once if there is none. */
    int (*event_sync)(struct device *dev, struct event *e, struct error *err);
    /* Host backends only (else NULL): runs fn in the order of s. */
    int (*host_call)(struct device *dev, struct stream *s, device_call_fn fn, const void *args,
                     size_t bytes, struct error *err);
    /* Threads that a kernel of this device may use; an accelerator: 1. */
    int (*num_threads)(struct device *dev);

    /* What is enqueued in s between begin and end is not run but becomes a graph, whose launch then
     * does all of it. NULL on devices that have no graphs: look before. end: *out is NULL and it
     * returns 0 where the work can't be captured (text says why); it has not run then. */
    int (*capture_begin)(struct device *dev, struct stream *s, struct error *err);
    int (*capture_end)(struct device *dev, struct stream *s, struct graph **out, char *why,
                       size_t why_size, struct error *err);
    int (*graph_launch)(struct device *dev, struct stream *s, struct graph *g, struct error *err);
    void (*graph_free)(struct device *dev, struct graph *g);
};

/* Is its memory the host's, its compute stream maybe inline? */
#define DEVICE_IS_HOST(dev) ((dev)->ops->host_call != NULL)

struct device {
    const struct device_ops *ops;
};

/* Backends with host memory. num_threads: of the rank, itself included, >= 1. */
int device_open_ref(struct device **out, struct error *err);
int device_open_cpu(struct device **out, int num_threads, struct error *err);

#endif
