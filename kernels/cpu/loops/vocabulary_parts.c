/* Cross entropy of a vocabulary that is cut over ranks. */
#include "kernels/host/variant/variant.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/loops/logits.h"

/* A row of a part; x is NULL where the row counts for nothing. */
struct part_row {
    const elem *x;
    elem *dx;       /* NULL: none */
    int64_t target; /* its column, -1 = another part has it */
};

static struct part_row part_row(const struct ce_args *a, int64_t r)
{
    const struct logits_part *p = &a->p;
    struct part_row row = {.dx = a->dlogits ? (elem *)a->dlogits + r * p->ld : NULL, .target = -1};
    if (p->targets[r] == IGNORED_TARGET) {
        return row;
    }
    int64_t target = (int64_t)p->targets[r] - p->first;
    row.x = (const elem *)p->logits + r * p->ld;
    row.target = target >= 0 && target < p->valid ? target : -1;
    return row;
}

static void run_rows(struct pool *pool, const void *args, pool_task_fn fn)
{
    struct ce_args a = *(const struct ce_args *)args;
    pool_run(pool, num_blocks(a.p.r, row_block(a.p.ld)), fn, &a);
}

static void ce_max_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct ce_args *a = arg;
    int64_t begin = task * row_block(a->p.ld);
    int64_t end = min_i64(a->p.r, begin + row_block(a->p.ld));
    for (int64_t r = begin; r < end; r++) {
        struct part_row row = part_row(a, r);
        a->out[r] = row.x ? (double)logits_max(row.x, a->p.valid) : 0;
    }
}

void OP(ce_max)(struct pool *pool, const void *args)
{
    run_rows(pool, args, ce_max_task);
}

static void ce_sum_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct ce_args *a = arg;
    int64_t begin = task * row_block(a->p.ld);
    int64_t end = min_i64(a->p.r, begin + row_block(a->p.ld));
    for (int64_t r = begin; r < end; r++) {
        struct part_row row = part_row(a, r);
        a->out[r] = row.x ? logits_sum_exp(row.x, a->p.valid, (real)a->max[r]) : 0;
        a->out[a->p.r + r] = row.target >= 0 ? (double)elem_load(row.x[row.target]) : 0;
    }
}

void OP(ce_sum)(struct pool *pool, const void *args)
{
    run_rows(pool, args, ce_sum_task);
}

static void row_gradient(const struct ce_args *a, const struct part_row *row, real max,
                         double total)
{
    double at_target =
        row->target >= 0 ? exp((double)elem_load(row->x[row->target]) - (double)max) : 0;
    real factor = (real)(a->dloss / total);
#pragma omp simd
    for (int64_t i = 0; i < a->p.valid; i++) {
        row->dx[i] = elem_store(exp_real(elem_load(row->x[i]) - max) * factor);
    }
    if (row->target >= 0) {
        row->dx[row->target] = elem_store((real)((at_target / total - 1) * a->dloss));
    }
}

static void ce_finish_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct ce_args *a = arg;
    int64_t begin = task * row_block(a->p.ld);
    int64_t end = min_i64(a->p.r, begin + row_block(a->p.ld));
    for (int64_t r = begin; r < end; r++) {
        struct part_row row = part_row(a, r);
        int64_t num_written = row.x ? a->p.valid : 0;
        double total = a->sums[r];
        a->out[r] = row.x ? log(total) + (a->max[r] - a->sums[a->p.r + r]) : 0;
        if (row.dx && row.x) {
            row_gradient(a, &row, (real)a->max[r], total);
        }
        if (row.dx) {
            memset(row.dx + num_written, 0, (size_t)(a->p.ld - num_written) * sizeof(elem));
        }
    }
}

void OP(ce_finish)(struct pool *pool, const void *args)
{
    run_rows(pool, args, ce_finish_task);
}
