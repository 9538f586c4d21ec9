/* Device memory of a test, and the schedules that it runs in. */
#ifndef TANDEM_TESTS_CUSIM_SIDE_H
#define TANDEM_TESTS_CUSIM_SIDE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/cusim/control.h"

#define MUST(call) assert_int_equal((call), cudaSuccess)
/* Of a call that fills err, which the test has. */
#define GOOD(call)                                                                                 \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            fail_msg("%s", err.text);                                                              \
        }                                                                                          \
    } while (0)

/* Of nine; ThreadSanitizer finds in one of them what it finds in others, and is slow. */
#ifdef CUSIM_TSAN
#define NUM_SCHEDULES 3
#else
#define NUM_SCHEDULES 9
#endif

static inline void schedule_take(int i)
{
    int streams = NUM_SCHEDULES == 9 ? i / 3 : i;
    cusim_schedule((enum cusim_threads)(i % 3), (enum cusim_streams)(streams % 3), (uint64_t)i + 1);
}

static inline cudaStream_t stream_open(void)
{
    cudaStream_t s;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

/* Device memory with a copy of `bytes` from host memory, or NaNs where from is NULL; `skip` more
 * bytes lie in front, so that it starts where an allocation wouldn't. Free with side_free. */
static inline void *side_put_at(cudaStream_t s, const void *from, size_t bytes, size_t skip)
{
    char *mem = NULL;
    MUST(cudaMalloc((void **)&mem, bytes + skip + 1));
    if (from) {
        MUST(cudaMemcpyAsync(mem + skip, from, bytes, cudaMemcpyHostToDevice, s));
    }
    return mem + skip;
}

static inline void *side_put(cudaStream_t s, const void *from, size_t bytes)
{
    return side_put_at(s, from, bytes, 0);
}

static inline void side_free(void *mem, size_t skip)
{
    MUST(cudaFree((char *)mem - skip));
}

/* What lies there when the stream has come so far. */
static inline void side_get(cudaStream_t s, void *to, const void *mem, size_t bytes)
{
    MUST(cudaMemcpyAsync(to, mem, bytes, cudaMemcpyDeviceToHost, s));
    MUST(cudaStreamSynchronize(s));
}

#endif
