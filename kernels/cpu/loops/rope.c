#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"

static void rotate(elem *x, const real *cos, const real *sin, real sign, int64_t half)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        real x0 = elem_load(x[i]);
        real x1 = elem_load(x[i + half]);
        real s = sign * sin[i];
        x[i] = elem_store(x0 * cos[i] - x1 * s);
        x[i + half] = elem_store(x1 * cos[i] + x0 * s);
    }
}

static void rope_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct rope_args *a = arg;
    int64_t half = a->e / 2;
    int64_t width = a->heads * a->e;
    int64_t begin = task * row_block(width);
    int64_t end = min_i64(a->r, begin + row_block(width));
    real sign = a->backward ? -1 : 1;
    for (int64_t r = begin; r < end; r++) {
        int64_t position = a->positions ? a->positions[r] : r % a->seq_len;
        const real *cos = (const real *)a->cos + position * half;
        const real *sin = (const real *)a->sin + position * half;
        for (int64_t h = 0; h < a->heads; h++) {
            rotate((elem *)a->x + r * width + h * a->e, cos, sin, sign, half);
        }
    }
}

void OP(rope)(struct pool *pool, const void *args)
{
    struct rope_args a = *(const struct rope_args *)args;
    pool_run(pool, num_blocks(a.r, row_block(a.heads * a.e)), rope_task, &a);
}
