#include "kernels/host/variant/variant.h"
#include "kernels/host/variant/watch.h"

#include "kernels/ref/gelu.h"

/* Entries of C whose sums are kept at once. Each is summed over k in order, as in the plainest of
 * loops; a block only reads A and B less often. */
#ifdef __SANITIZE_ADDRESS__
#define ROWS 16 /* which looks at each entry that is read */
#else
#define ROWS 4
#endif
#define COLS 32

struct walk {
    const elem *at;
    int64_t row, col;
};

/* sum += x y^T. Of arrays whose ends the loops' bounds are: what a sanitizer would look at here,
 * entry by entry, is no operand, and takes most of the time that a test under it trains. */
__attribute__((no_sanitize("address", "undefined"))) static void
add_products(const double x[ROWS], const double y[COLS], double sum[ROWS][COLS])
{
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t j = 0; j < COLS; j++) {
            sum[i][j] += x[i] * y[j];
        }
    }
}

/* sum [ROWS][COLS] for the block at (i, j); where the block is smaller the rest is of no meaning.
 */
static void sum_block(struct walk a, struct walk b, int64_t k, int64_t rows, int64_t cols,
                      double sum[ROWS][COLS])
{
    double x[ROWS] = {0};
    double y[COLS] = {0};
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < rows; i++) {
            x[i] = (double)elem_load(a.at[i * a.row + p * a.col]);
        }
        for (int64_t j = 0; j < cols; j++) {
            y[j] = (double)elem_load(b.at[p * b.row + j * b.col]);
        }
        add_products(x, y, sum);
    }
}

/* An entry of a matrix that is like C. */
static double get(const struct gemm_args *g, const void *like_c, int64_t at)
{
    return g->c_type == DTYPE_BF16 ? (double)elem_load(((const elem *)like_c)[at])
                                   : (double)((const real *)like_c)[at];
}

static void put(const struct gemm_args *g, void *like_c, int64_t at, double x)
{
    if (g->c_type == DTYPE_BF16) {
        ((elem *)like_c)[at] = elem_store((real)x);
    } else {
        ((real *)like_c)[at] = (real)x;
    }
}

/* Writes entry (i, j), whose products sum up to sum. */
static void finish(const struct gemm_args *g, int64_t i, int64_t j, double sum)
{
    int64_t at = i * g->ldc + j;
    double x = g->alpha * sum + (g->beta == 0 ? 0 : g->beta * get(g, g->c0 ? g->c0 : g->c, at));
    if (g->bias) {
        x += (double)elem_load(((const elem *)g->bias)[j]);
    }
    if (g->gelu_of) {
        x *= gelu_slope(get(g, g->gelu_of, at));
    }
    put(g, g->c, at, x);
    if (g->gelu) {
        put(g, g->gelu, at, gelu(get(g, g->c, at)));
    }
}

/* All that a product reads and writes. */
static void watch(const struct gemm_args *g)
{
    size_t c_size = g->c_type == DTYPE_BF16 ? sizeof(elem) : sizeof(real);
    watch_read(g->a, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, g->lda, sizeof(elem));
    watch_read(g->b, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, g->ldb, sizeof(elem));
    watch_read(g->c0 ? g->c0 : g->c, g->beta == 0 ? 0 : g->m, g->n, g->ldc, c_size);
    watch_read(g->bias, g->bias ? 1 : 0, g->n, 0, sizeof(elem));
    watch_read(g->gelu_of, g->gelu_of ? g->m : 0, g->n, g->ldc, c_size);
    watch_write(g->c, g->m, g->n, g->ldc, c_size);
    watch_write(g->gelu, g->gelu ? g->m : 0, g->n, g->ldc, c_size);
}

void OP(gemm)(struct pool *pool, const void *args)
{
    (void)pool;
    const struct gemm_args *g = args;
    watch(g);
    struct walk a = {g->a, g->trans_a ? 1 : g->lda, g->trans_a ? g->lda : 1};
    struct walk b = {g->b, g->trans_b ? 1 : g->ldb, g->trans_b ? g->ldb : 1};
    for (int64_t i0 = 0; i0 < g->m; i0 += ROWS) {
        for (int64_t j0 = 0; j0 < g->n; j0 += COLS) {
            int64_t rows = g->m - i0 < ROWS ? g->m - i0 : ROWS;
            int64_t cols = g->n - j0 < COLS ? g->n - j0 : COLS;
            struct walk a_part = {a.at + i0 * a.row, a.row, a.col};
            struct walk b_part = {b.at + j0 * b.col, b.row, b.col};
            double sum[ROWS][COLS] = {0};
            sum_block(a_part, b_part, g->k, rows, cols, sum);
            for (int64_t i = 0; i < rows; i++) {
                for (int64_t j = 0; j < cols; j++) {
                    finish(g, i0 + i, j0 + j, sum[i][j]);
                }
            }
        }
    }
}
