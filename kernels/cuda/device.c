/* Opening a device, its memory, copies. */
#include "kernels/cuda/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/times.h"

/* The kernels are built for this compute capability and later ones. */
#define MIN_MAJOR 8

struct memory {
    struct memory *next;
    void *mem;
    size_t bytes;
    enum mem_kind kind;
};

int cuda_error(struct error *err, cudaError_t e, const char *fmt, ...)
{
    char what[ERROR_TEXT_MAX / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    cudaGetLastError(); /* it was told */
    enum error_code code = e == cudaErrorMemoryAllocation ? ERR_RESOURCE_EXHAUSTED : ERR_INTERNAL;
    return error_set(err, code, "%s: CUDA error %d (%s): %s", what, (int)e, cudaGetErrorName(e),
                     cudaGetErrorString(e));
}

int cuda_device_index(struct device *dev)
{
    return cuda_of(dev)->index;
}

int cuda_use(struct device *dev, struct error *err)
{
    int now = -1;
    int index = cuda_of(dev)->index;
    if (cudaGetDevice(&now) == cudaSuccess && now == index) {
        return 0;
    }
    CUDA_TRY(cudaSetDevice(index), "device %d", index);
    return 0;
}

/* ---- memory ---- */

static cudaError_t allocate(struct cuda_device *d, struct memory *m)
{
    size_t bytes = m->bytes ? m->bytes : 1;
    if (m->kind == MEM_HOST) {
        cudaError_t e = cudaHostAlloc(&m->mem, bytes, cudaHostAllocDefault);
        if (e == cudaSuccess) {
            memset(m->mem, 0, bytes);
        }
        return e;
    }
    cudaError_t e = cudaMalloc(&m->mem, bytes);
    if (e != cudaSuccess) {
        return e;
    }
    e = cudaMemsetAsync(m->mem, 0, bytes, d->own);
    return e == cudaSuccess ? cudaStreamSynchronize(d->own) : e;
}

static void release(struct memory *m)
{
    if (m->mem && m->kind == MEM_HOST) {
        cudaFreeHost(m->mem);
    } else if (m->mem) {
        cudaFree(m->mem);
    }
    free(m);
}

static void *device_alloc(struct device *dev, size_t bytes, enum mem_kind kind)
{
    struct cuda_device *d = cuda_of(dev);
    struct memory *m = calloc(1, sizeof *m);
    if (!m || cuda_use(dev, NULL) != 0) {
        free(m);
        return NULL;
    }
    *m = (struct memory){.next = d->memory, .bytes = bytes, .kind = kind};
    if (allocate(d, m) != cudaSuccess) {
        cudaGetLastError();
        release(m);
        return NULL;
    }
    d->memory = m;
    if (kind == MEM_DEVICE) {
        d->bytes_now += bytes;
        d->bytes_peak = d->bytes_now > d->bytes_peak ? d->bytes_now : d->bytes_peak;
    }
    return m->mem;
}

static void device_free(struct device *dev, void *mem)
{
    struct cuda_device *d = cuda_of(dev);
    if (!mem) {
        return;
    }
    struct memory **link = &d->memory;
    while (*link && (*link)->mem != mem) {
        link = &(*link)->next;
    }
    ASSERT(*link);
    struct memory *m = *link;
    *link = m->next;
    d->bytes_now -= m->kind == MEM_DEVICE ? m->bytes : 0;
    cuda_use(dev, NULL);
    release(m);
}

static int64_t device_mem_peak(struct device *dev)
{
    return (int64_t)cuda_of(dev)->bytes_peak;
}

static int device_copy(struct device *dev, struct stream *s, void *dst, const void *src,
                       size_t bytes, enum copy_kind kind, struct error *err)
{
    static const enum cudaMemcpyKind kinds[] = {
        [COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
        [COPY_TO_HOST] = cudaMemcpyDeviceToHost,
        [COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice,
    };
    ASSERT(bytes == 0 || (dst && src));
    if (bytes == 0) {
        return 0;
    }
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, kinds[kind], s->cuda), "copy of %zu bytes", bytes);
    return 0;
}

static int device_zero(struct device *dev, struct stream *s, void *dst, size_t bytes,
                       struct error *err)
{
    if (bytes == 0) {
        return 0;
    }
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaMemsetAsync(dst, 0, bytes, s->cuda), "zero of %zu bytes", bytes);
    return 0;
}

static int device_num_threads(struct device *dev)
{
    (void)dev;
    return 1;
}

/* ---- opening ---- */

static void device_close(struct device *dev)
{
    struct cuda_device *d = cuda_of(dev);
    cuda_use(dev, NULL);
    times_write(dev);
    if (d->own) {
        cudaStreamDestroy(d->own);
    }
    while (d->memory) {
        struct memory *m = d->memory;
        d->memory = m->next;
        release(m);
    }
    cudnn_close(d->cudnn);
    gemm_cache_free(d->gemm);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static const struct device_ops cuda_ops = {
    .name = "cuda",
    .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .mem_peak = device_mem_peak,
    .copy = device_copy,
    .zero = device_zero,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_sync = cuda_stream_sync,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .stream_wait = cuda_stream_wait,
    .event_sync = cuda_event_sync,
    .num_threads = device_num_threads,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
};

/* Drivers are good for every CUDA of their major version, and for older ones. */
static int check_driver(struct error *err)
{
    int has = 0;
    CUDA_TRY(cudaDriverGetVersion(&has), "version of the NVIDIA driver");
    if (has == 0) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the NVIDIA driver doesn't answer: its kernel module may not be loaded");
    }
    if (has / 1000 < CUDART_VERSION / 1000) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "the NVIDIA driver is too old: it is good for CUDA %d.%d, this needs "
                         "CUDA %d: install a newer driver, or use backend cpu",
                         has / 1000, has % 1000 / 10, CUDART_VERSION / 1000);
    }
    return 0;
}

int cuda_device_count(int32_t *num, struct error *err)
{
    int n = 0;
    if (check_driver(err) != 0) {
        return -1;
    }
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess && e != cudaErrorNoDevice) {
        cuda_error(err, e, "the NVIDIA driver doesn't answer");
        if (err) {
            err->code = ERR_FAILED_PRECONDITION;
        }
        return -1;
    }
    cudaGetLastError();
    *num = e == cudaSuccess ? n : 0;
    return 0;
}

static int check_device(int index, struct error *err)
{
    int32_t num;
    struct cudaDeviceProp p;
    if (cuda_device_count(&num, err) != 0) {
        return -1;
    }
    if (index < 0 || index >= num) {
        return error_set(err, ERR_FAILED_PRECONDITION, "device %d: the process sees %d", index,
                         num);
    }
    CUDA_TRY(cudaGetDeviceProperties(&p, index), "device %d", index);
    if (p.major < MIN_MAJOR) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "device %d (%s) has compute capability %d.%d: %d.0 or later is needed",
                         index, p.name, p.major, p.minor, MIN_MAJOR);
    }
    return 0;
}

static int device_start(struct cuda_device *d, struct error *err)
{
    if (cuda_use(&d->base, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&d->low, &d->high), "device %d", d->index);
    CUDA_TRY(cudaStreamCreateWithFlags(&d->own, cudaStreamNonBlocking), "device %d", d->index);
    return gemm_cache_new(&d->gemm, err);
}

int cuda_device_open(int32_t index, struct device **out, struct error *err)
{
    if (check_device(index, err) != 0) {
        return -1;
    }
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "device %d: no memory", index);
    }
    d->base.ops = &cuda_ops;
    d->index = index;
    pthread_mutex_init(&d->lock, NULL);
    if (device_start(d, err) != 0) {
        device_close(&d->base);
        return error_wrap(err, "open");
    }
    *out = &d->base;
    return 0;
}
