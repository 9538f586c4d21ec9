#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"

/* Columns that one task sums, and rows whose sum is made on its own before it is added in double.
 */
#define SUM_COLS INT64_C(128)
#define SUM_ROWS INT64_C(64)

static void add_bias_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct bias_args *a = arg;
    const elem *b = a->in;
    int64_t begin = task * row_block(a->n);
    int64_t end = min_i64(a->r, begin + row_block(a->n));
    for (int64_t r = begin; r < end; r++) {
        elem *y = (elem *)a->out + r * a->n;
#pragma omp simd
        for (int64_t i = 0; i < a->n; i++) {
            y[i] = elem_store(elem_load(y[i]) + elem_load(b[i]));
        }
    }
}

void OP(add_bias)(struct pool *pool, const void *args)
{
    struct bias_args a = *(const struct bias_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.n)), add_bias_task, &a);
}

static void column_sum_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct bias_args *a = arg;
    int64_t begin = task * SUM_COLS;
    int64_t n = min_i64(a->n, begin + SUM_COLS) - begin;
    double total[SUM_COLS] = {0};
    for (int64_t first = 0; first < a->r; first += SUM_ROWS) {
        int64_t end = min_i64(a->r, first + SUM_ROWS);
        real sum[SUM_COLS] = {0};
        for (int64_t r = first; r < end; r++) {
            const elem *dy = (const elem *)a->in + r * a->n + begin;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                sum[i] += elem_load(dy[i]);
            }
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            total[i] += (double)sum[i];
        }
    }
    real *db = (real *)a->out + begin;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        db[i] = (real)((double)db[i] + total[i]);
    }
}

void OP(column_sum)(struct pool *pool, const void *args)
{
    struct bias_args a = *(const struct bias_args *)args;
    pool_run(pool, num_blocks(a.n, SUM_COLS), column_sum_task, &a);
}
