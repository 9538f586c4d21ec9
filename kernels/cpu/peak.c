#include "kernels/cpu/peak.h"

#include <cblas.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/cpu.h"
#include "kernels/host/alloc.h"

/* Large enough for the library's best speed, small enough for many tries. */
#define SIDE 768
#define TIME_LIMIT_NS INT64_C(70000000)
#define MIN_TRIES 2

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void multiply(enum dtype t, const void *a, const void *b, void *c)
{
    if (t == DTYPE_F64) {
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b,
                    SIDE, 0, c, SIDE);
    } else {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b,
                    SIDE, 0, c, SIDE);
    }
}

double peak_flops(enum dtype t)
{
    const struct loops *loops = cpu_loops(t);
    struct host_heap *heap = host_heap_new();
    size_t bytes = SIDE * SIDE * dtype_size(t);
    char *mem = loops && heap ? host_alloc(heap, 3 * bytes) : NULL;
    double best = 0;
    if (mem) {
        int64_t start = now_ns();
        int64_t end = start;
        for (int i = 0; i < MIN_TRIES || end - start < TIME_LIMIT_NS; i++) {
            int64_t begin = now_ns();
            multiply(t, mem, mem + bytes, mem + 2 * bytes);
            end = now_ns();
            double flops = 2.0 * SIDE * SIDE * SIDE / (double)(end - begin) * 1e9;
            best = flops > best ? flops : best;
        }
    }
    host_heap_free(heap);
    return best;
}
