#include "kernels/host/variant/variant.h"

/* Columns of C whose sums are kept at once; the order of k is the same for all of them. */
#define COLS 16

void OP(gemm)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gemm_args *g = args;
    const real *a = g->a;
    const real *b = g->b;
    real *c = g->c;
    int64_t a_row = g->trans_a ? 1 : g->lda;
    int64_t a_col = g->trans_a ? g->lda : 1;
    int64_t b_row = g->trans_b ? 1 : g->ldb;
    int64_t b_col = g->trans_b ? g->ldb : 1;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j0 = 0; j0 < g->n; j0 += COLS) {
            int64_t cols = g->n - j0 < COLS ? g->n - j0 : COLS;
            double sum[COLS] = {0};
            for (int64_t p = 0; p < g->k; p++) {
                double x = (double)a[i * a_row + p * a_col];
                for (int64_t j = 0; j < cols; j++) {
                    sum[j] += x * (double)b[p * b_row + (j0 + j) * b_col];
                }
            }
            for (int64_t j = 0; j < cols; j++) {
                real *out = &c[i * g->ldc + j0 + j];
                double old = g->beta == 0 ? 0 : g->beta * (double)*out;
                *out = (real)(g->alpha * sum[j] + old);
            }
        }
    }
}
