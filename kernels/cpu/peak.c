#include "kernels/cpu/peak.h"

#include <stdint.h>
#include <time.h>

#include "kernels/cpu/cpu.h"
#include "kernels/host/alloc.h"

/* Large enough for the best speed, small enough for many tries. */
#define SIDE 512
#define TIME_LIMIT_NS INT64_C(70000000)
#define MIN_TRIES 2

/* The time that this thread ran: what others take from the processor doesn't count. */
static int64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double peak_flops(enum dtype t)
{
    const struct loops *loops = cpu_loops(t);
    struct host_heap *heap = host_heap_new();
    size_t bytes = SIDE * SIDE * dtype_size(t);
    char *mem = loops && heap ? host_alloc(heap, 3 * bytes) : NULL;
    double best = 0;
    if (mem) {
        struct gemm_args g = {.m = SIDE,
                              .n = SIDE,
                              .k = SIDE,
                              .alpha = 1,
                              .a = mem,
                              .lda = SIDE,
                              .b = mem + bytes,
                              .ldb = SIDE,
                              .c = mem + 2 * bytes,
                              .ldc = SIDE,
                              .c_type = t};
        int64_t start = cpu_now_ns();
        int64_t end = start;
        for (int i = 0; i < MIN_TRIES || end - start < TIME_LIMIT_NS; i++) {
            int64_t begin = cpu_now_ns();
            loops->gemm(NULL, &g);
            end = cpu_now_ns();
            double flops = 2.0 * SIDE * SIDE * SIDE / (double)(end - begin) * 1e9;
            best = flops > best ? flops : best;
        }
    }
    host_heap_free(heap);
    return best;
}
