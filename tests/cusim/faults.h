/* Programs with one mistake each, and their right twins: what the simulator and the sanitizers have
 * to find, and what they must leave alone. faults_test.py says who finds what. */
#ifndef TANDEM_TESTS_CUSIM_FAULTS_H
#define TANDEM_TESTS_CUSIM_FAULTS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cu.h"

/* Returns 0, or 3 where the result is wrong. right: without the mistake. */
struct fault {
    const char *name;
    int (*run)(int right);
};
extern const struct fault thread_faults[], memory_faults[], stream_faults[];

#define NUM_THREADS 64
#define WRONG_RESULT 3

static inline void must(cudaError_t e)
{
    if (e != cudaSuccess) {
        fprintf(stderr, "error: %s\n", cudaGetErrorString(e));
        exit(4);
    }
}

/* A stream, some device memory and as much pinned memory. */
struct bench {
    cudaStream_t s;
    float *device, *host;
    size_t bytes;
};

static inline struct bench bench_open(int n)
{
    struct bench b = {nullptr, nullptr, nullptr, (size_t)n * sizeof(float)};
    must(cudaStreamCreateWithFlags(&b.s, cudaStreamNonBlocking));
    must(cudaMalloc((void **)&b.device, b.bytes));
    must(cudaMallocHost((void **)&b.host, b.bytes));
    return b;
}

static inline void bench_fetch(struct bench *b)
{
    must(cudaMemcpyAsync(b->host, b->device, b->bytes, cudaMemcpyDeviceToHost, b->s));
    must(cudaStreamSynchronize(b->s));
}

static inline void bench_close(struct bench *b)
{
    must(cudaStreamSynchronize(b->s));
    must(cudaFree(b->device));
    must(cudaFreeHost(b->host));
    must(cudaStreamDestroy(b->s));
}

/* Are all of n numbers what they should be? */
static inline int bench_check(const float *x, int n, float want)
{
    for (int i = 0; i < n; i++) {
        if (!(fabsf(x[i] - want) <= 1e-6f)) {
            fprintf(stderr, "wrong result: [%d] = %g, not %g\n", i, (double)x[i], (double)want);
            return WRONG_RESULT;
        }
    }
    return 0;
}

/* Runs a kernel of (float *out, int right) on one block or more and checks what it leaves. */
static inline int bench_run(void (*kernel)(float *, int), int right, int num_blocks, int num_out,
                            float want)
{
    struct bench b = bench_open(num_out);
    must(cudaMemsetAsync(b.device, 0, b.bytes, b.s));
    CU_LAUNCH(kernel, dim3((unsigned)num_blocks), dim3(NUM_THREADS), 0, b.s, b.device, right);
    must(cudaGetLastError());
    bench_fetch(&b);
    int rc = bench_check(b.host, num_out, want);
    bench_close(&b);
    return rc;
}

#endif
