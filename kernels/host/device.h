/* A device whose memory is the host's: what ref and cpu share. Not a backend by itself: the loops
 * are given to it. */
#ifndef TANDEM_KERNELS_HOST_DEVICE_H
#define TANDEM_KERNELS_HOST_DEVICE_H

#include "kernels/device.h"
#include "kernels/host/alloc.h"
#include "kernels/host/loops.h"

/* F32, F64, BF16: what activations may have. */
#define HOST_DTYPES 3

struct host_device {
    struct device base;
    struct device_ops ops;
    struct host_heap *heap;
    struct pool *pool;
    const struct loops *loops[HOST_DTYPES]; /* of each dtype; borrowed, static */
};

/* name: static, of the backend. */
int host_device_open(struct device **out, const char *name, int num_threads,
                     const struct loops *const loops[HOST_DTYPES], struct error *err);

/* The tables of operations of the host backends: they check the call, then run the device's loops
 * in the order of the stream. */
extern const struct kernels host_kernels_ref;
extern const struct kernels host_kernels_cpu;

#endif
