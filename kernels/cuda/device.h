/* A CUDA device of one rank, as the plug-in's own files see it. Its streams never wait for CUDA's
 * stream 0, and nothing uses that one.
 *
 * CUDA's current device is the calling thread's: whoever calls CUDA says cuda_use first. */
#ifndef TANDEM_KERNELS_CUDA_DEVICE_H
#define TANDEM_KERNELS_CUDA_DEVICE_H

#include <pthread.h>

#include <cuda_runtime_api.h>

#include "kernels/device.h"

struct cudnn;
struct gemm_cache;
struct memory;

/* Has what the device computed lost its worth? Then err says why. */
typedef bool (*cuda_lost_fn)(void *arg, struct error *err);

struct cuda_device {
    struct device base;
    int index;
    struct memory *memory; /* all that was allocated */
    size_t bytes_now, bytes_peak;
    cudaStream_t own; /* zeroes what was allocated */
    int low, high;    /* priorities of streams */
    struct gemm_cache *gemm;
    struct cudnn *cudnn; /* NULL where it isn't used */
    bool asked_for_cudnn;
    pthread_mutex_t lock;   /* of what stands below, and of each stream's failure */
    struct stream *streams; /* all that there are */
    struct stream *failed;  /* whose failure was the first that nobody has heard of */
    struct error failure;
    cuda_lost_fn lost; /* NULL = nobody to ask */
    void *lost_arg;
};

struct stream {
    struct stream *next; /* of the device */
    struct cuda_device *dev;
    cudaStream_t cuda;
    void *workspace;    /* of matrix products; NULL in a queue */
    void *column_parts; /* of sums of columns */
    bool has_failed;
    struct error failure;
};

static inline struct cuda_device *cuda_of(struct device *dev)
{
    return (struct cuda_device *)dev;
}

/* "what: CUDA error 700 (cudaErrorIllegalAddress): ..."; returns -1. */
int cuda_error(struct error *err, cudaError_t e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define CUDA_TRY(call, ...)                                                                        \
    do {                                                                                           \
        cudaError_t cuda_try_error = (call);                                                       \
        if (cuda_try_error != cudaSuccess)                                                         \
            return cuda_error(err, cuda_try_error, __VA_ARGS__);                                   \
    } while (0)

/* Makes dev the calling thread's device. */
int cuda_use(struct device *dev, struct error *err);
int cuda_device_index(struct device *dev);
cudaStream_t cuda_stream_of(struct stream *s);

/* Any thread: what s does has failed otherwise than CUDA knows. The next sync of s returns this
 * once; until then so do those of all other streams and events of dev, since they may have waited
 * for s. Call it before you let s go on. Nothing where s has been freed: it had done its work. */
void cuda_stream_fail(struct device *dev, struct stream *s, const struct error *why);

/* fn is asked behind every sync of dev's streams and events, under dev's lock: what was waited for
 * may have ended only because somebody let go of it. One at a time; NULL = nobody. */
void cuda_ask_if_lost(struct device *dev, cuda_lost_fn fn, void *arg);

/* Bytes that each compute stream takes for matrix products. */
#define CUDA_GEMM_WORKSPACE ((size_t)32 << 20)

int cuda_device_count(int32_t *num, struct error *err);
int cuda_device_open(int32_t index, struct device **out, struct error *err);

/* device.c's table takes these from stream.c and capture.c; kernels/device.h says what they do. */
int cuda_stream_new(struct device *dev, enum stream_kind kind, struct stream **out,
                    struct error *err);
void cuda_stream_free(struct device *dev, struct stream *s);
int cuda_stream_sync(struct device *dev, struct stream *s, struct error *err);
int cuda_event_new(struct device *dev, struct event **out, struct error *err);
void cuda_event_free(struct device *dev, struct event *e);
int cuda_event_record(struct device *dev, struct event *e, struct stream *s, struct error *err);
int cuda_stream_wait(struct device *dev, struct stream *s, struct event *e, struct error *err);
int cuda_event_sync(struct device *dev, struct event *e, struct error *err);
int cuda_capture_begin(struct device *dev, struct stream *s, struct error *err);
int cuda_capture_end(struct device *dev, struct stream *s, struct graph **out, char *why,
                     size_t why_size, struct error *err);
int cuda_graph_launch(struct device *dev, struct stream *s, struct graph *g, struct error *err);
void cuda_graph_free(struct device *dev, struct graph *g);

#endif
