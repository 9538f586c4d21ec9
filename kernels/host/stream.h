/* Streams and events of a host device. An inline stream runs its work in the caller, whose call
 * returns the error. A queue stream has a thread and a bounded ring; after its first error it skips
 * work until the sync that reports it. An event that is recorded in a failed stream carries the
 * error to whoever waits for it. A full ring blocks the caller. Work in a queue is done by the
 * queue's thread alone: one that held the device's threads would leave computation without. */
#ifndef TANDEM_KERNELS_HOST_STREAM_H
#define TANDEM_KERNELS_HOST_STREAM_H

#include "kernels/device.h"
#include "kernels/host/loops.h"

/* Arguments of an operation, copied into the ring. */
#define HOST_ARGS_BYTES 256

/* One piece of work: either a loop over a pool or a closure. */
struct host_work {
    const char *op; /* for the error's text; static */
    loop_fn loop;
    struct pool *pool;
    device_call_fn call;
    const void *args;
    size_t bytes;
};

int host_stream_new(struct stream **out, enum stream_kind kind, struct error *err);
/* Finishes the work that is in it. */
void host_stream_free(struct stream *s);
int host_stream_submit(struct stream *s, const struct host_work *work, struct error *err);
int host_stream_sync(struct stream *s, struct error *err);

int host_event_new(struct event **out, struct error *err);
/* No stream may still hold a record of it or a wait for it. */
void host_event_free(struct event *e);
int host_event_record(struct event *e, struct stream *s, struct error *err);
int host_event_sync(struct event *e, struct error *err);
int host_stream_wait(struct stream *s, struct event *e, struct error *err);

#endif
