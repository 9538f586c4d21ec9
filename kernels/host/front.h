/* The front of every operation on a host device: checks what the caller passes, packs it, and puts
 * the loop of the right type into the stream. What they share, and those that front.c's tables take
 * from other files. */
#ifndef TANDEM_KERNELS_HOST_FRONT_H
#define TANDEM_KERNELS_HOST_FRONT_H

#include "kernels/front.h"
#include "kernels/host/device.h"
#include "kernels/host/stream.h"

static inline const struct loops *front_loops(struct device *dev, enum dtype t)
{
    const struct host_device *d = (const struct host_device *)dev;
    return (unsigned)t < HOST_DTYPES ? d->loops[t] : NULL;
}

static inline int front_no_such_type(struct device *dev, const char *op, enum dtype t,
                                     struct error *err)
{
    return error_set(err, ERR_UNIMPLEMENTED, "%s: backend %s has no type %d", op, dev->ops->name,
                     (int)t);
}

static inline int front_submit(struct device *dev, struct stream *s, const char *op, loop_fn loop,
                               const void *args, size_t bytes, struct error *err)
{
    struct host_work work = {.op = op,
                             .loop = loop,
                             .pool = ((struct host_device *)dev)->pool,
                             .args = args,
                             .bytes = bytes};
    return host_stream_submit(s, &work, err);
}

int front_swiglu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *gate,
                     const void *up, int64_t n, struct error *err);
int front_swiglu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dgate, void *dup,
                     const void *dy, const void *gate, const void *up, int64_t n,
                     struct error *err);
int front_gelu_fwd(struct device *dev, struct stream *s, enum dtype t, void *y, const void *x,
                   int64_t n, struct error *err);
int front_gelu_bwd(struct device *dev, struct stream *s, enum dtype t, void *dx, const void *dy,
                   const void *x, int64_t n, struct error *err);
int front_add_bias(struct device *dev, struct stream *s, enum dtype t, void *y, const void *b,
                   int64_t r, int64_t n, struct error *err);
int front_column_sum(struct device *dev, struct stream *s, enum dtype t, void *db, const void *dy,
                     int64_t r, int64_t n, struct error *err);

#endif
