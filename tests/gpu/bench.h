/* gpu_bench: times and checks on a GPU that need no training, through the plug-in as a rank uses
 * it. Each line of standard output is a JSON object; tests/gpu/run reads them. Other words go to
 * standard error, and the exit status is 1, where something can't be done or is wrong. */
#ifndef TANDEM_TESTS_GPU_BENCH_H
#define TANDEM_TESTS_GPU_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct bench {
    struct device *dev;
    const struct kernels *k;
    struct stream *s;
    bool tiny; /* for a simulated GPU: the same in sizes of no interest */
};

_Noreturn void bench_die(const struct error *err);
#define BENCH_TRY(call)                                                                            \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            bench_die(&err);                                                                       \
    } while (0)

void bench_open(struct bench *b, bool tiny);
void bench_close(struct bench *b);
/* n numbers of type t between -1 and 1, which repeat after about a million. */
void *bench_numbers(struct bench *b, enum dtype t, int64_t n, uint64_t seed);
void *bench_zeros(struct bench *b, size_t bytes);
/* The first n numbers of type t; the caller frees. */
float *bench_read(struct bench *b, enum dtype t, const void *mem, int64_t n);
/* Mean of a call's time on the device, in milliseconds: of as many as fit into about a tenth of a
 * second, behind some that aren't counted. */
typedef int (*bench_fn)(struct bench *b, void *arg, struct error *err);
double bench_ms(struct bench *b, bench_fn fn, void *arg);

int bench_attention(bool tiny);
int bench_gemm(bool tiny);
int bench_copy(bool tiny);
int bench_comm(bool tiny, int num_ranks);

#endif
