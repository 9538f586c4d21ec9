#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/block.h"

/* At most this many partial sums, which lie on the stack. */
#define MAX_PARTS INT64_C(64)

struct parts {
    const struct sum_args *a;
    int64_t size;
    double sum[MAX_PARTS];
};

static void sum_squares_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    struct parts *p = arg;
    const elem *x = p->a->x;
    int64_t end = min_i64(p->a->n, (task + 1) * p->size);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = task * p->size; i < end; i++) {
        sum += (double)elem_load(x[i]) * (double)elem_load(x[i]);
    }
    p->sum[task] = sum;
}

void OP(sum_squares)(struct pool *pool, const void *args)
{
    const struct sum_args *a = args;
    struct parts p = {.a = a, .size = max_i64(ELEMENT_BLOCK, num_blocks(a->n, MAX_PARTS))};
    int64_t num_parts = num_blocks(a->n, p.size);
    pool_run(pool, num_parts, sum_squares_task, &p);
    double total = 0;
    for (int64_t i = 0; i < num_parts; i++) {
        total += p.sum[i];
    }
    *a->out = total;
}
