/* What the loops over a row of logits have in common. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_LOGITS_H
#define TANDEM_KERNELS_CPU_LOOPS_LOGITS_H

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/exp.h"

/* A row's sum is made of sums this long, added up in double: rows have up to 10^5 entries. */
#define SUM_BLOCK INT64_C(1024)

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
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = begin; i < end; i++) {
            sum += exp_real(elem_load(x[i]) - max);
        }
        total += (double)sum;
    }
    return total;
}

#endif
