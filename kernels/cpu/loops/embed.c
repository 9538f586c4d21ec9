#include "kernels/host/variant/variant.h"

#include <string.h>

#include "kernels/cpu/loops/block.h"

/* Columns that one task of the backward pass sums: the order of rows stays as it is. */
#define BWD_COLS INT64_C(128)

static void embed_fwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct embed_args *a = arg;
    int64_t begin = task * row_block(a->d);
    int64_t end = min_i64(a->r, begin + row_block(a->d));
    for (int64_t r = begin; r < end; r++) {
        int64_t row = embed_row(a, a->ids[r]);
        elem *y = (elem *)a->out + r * a->d;
        if (row < 0) {
            memset(y, 0, (size_t)a->d * sizeof *y);
        } else {
            memcpy(y, (const elem *)a->in + row * a->d, (size_t)a->d * sizeof *y);
        }
    }
}

void OP(embed_fwd)(struct pool *pool, const void *args)
{
    struct embed_args a = *(const struct embed_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.d)), embed_fwd_task, &a);
}

static void embed_bwd_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct embed_args *a = arg;
    int64_t begin = task * BWD_COLS;
    int64_t n = min_i64(a->d, begin + BWD_COLS) - begin;
    for (int64_t r = 0; r < a->r; r++) {
        int64_t row = embed_row(a, a->ids[r]);
        if (row < 0) {
            continue;
        }
        real *dw = (real *)a->out + row * a->d + begin;
        const elem *dy = (const elem *)a->in + r * a->d + begin;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dw[i] += elem_load(dy[i]);
        }
    }
}

void OP(embed_bwd)(struct pool *pool, const void *args)
{
    struct embed_args a = *(const struct embed_args *)args;
    pool_run(pool, num_blocks(a.d, BWD_COLS), embed_bwd_task, &a);
}
