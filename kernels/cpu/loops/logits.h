/* What the loops over a row of logits have in common. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_LOGITS_H
#define TANDEM_KERNELS_CPU_LOOPS_LOGITS_H

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"

/* A row's sum is made of sums this long, added up in double: rows have up to 10^5 entries. Each is
 * cut into lanes, of which a vector has as many or fewer: a compiler that makes no vectors rounds
 * as little. */
#define SUM_BLOCK INT64_C(1024)
#define SUM_LANES INT64_C(16)

static inline double add_lanes(const real *lane)
{
    double total = 0;
    for (int64_t j = 0; j < SUM_LANES; j++) {
        total += (double)lane[j];
    }
    return total;
}

static inline real logits_max(const elem *x, int64_t v)
{
    real max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < v; i++) {
        real z = elem_load(x[i]);
        max = z > max ? z : max;
    }
    return max;
}

static inline double logits_sum_exp(const elem *x, int64_t v, real max)
{
    double total = 0;
    for (int64_t begin = 0; begin < v; begin += SUM_BLOCK) {
        int64_t end = min_i64(v, begin + SUM_BLOCK);
        real lane[SUM_LANES] = {0};
        int64_t i = begin;
        for (; i + SUM_LANES <= end; i += SUM_LANES) {
#pragma omp simd
            for (int64_t j = 0; j < SUM_LANES; j++) {
                lane[j] += exp_real(elem_load(x[i + j]) - max);
            }
        }
        for (; i < end; i++) {
            lane[i % SUM_LANES] += exp_real(elem_load(x[i]) - max);
        }
        total += add_lanes(lane);
    }
    return total;
}

#endif
