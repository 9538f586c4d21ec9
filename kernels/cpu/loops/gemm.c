/* Matrix products: C is cut into tiles, one thread a tile. How it is cut depends on the number of
 * threads, the result does not (multiply.h). */
#include "kernels/host/variant/variant.h"

#include <string.h>

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/gelu.h"
#include "kernels/cpu/loops/multiply.h"

/* Tiles a thread should find, so that one that is held up doesn't hold up all. */
#define TILES_PER_THREAD 2
/* Work below which a tile isn't worth a thread, and sides, in register blocks, below which packing
 * A and B anew for each tile costs too much. */
#define MIN_TILE_FLOPS 2e6
#define MIN_BLOCKS 4

struct tiling {
    const struct gemm_args *g;
    int64_t tile_m, tile_n;
    int64_t num_n;
};

static int64_t half(int64_t side, int64_t unit)
{
    return num_blocks(num_blocks(side, 2), unit) * unit;
}

static struct tiling tiling_of(const struct gemm_args *g, int num_threads)
{
    int64_t m = g->m;
    int64_t n = g->n;
    int64_t num = 1;
    int64_t wanted = num_threads > 1 ? num_threads * TILES_PER_THREAD : 1;
    int64_t rows = OP(multiply_rows)();
    int64_t cols = OP(multiply_cols)();
    while (num < wanted && 2.0 * (double)m * (double)n * (double)g->k >= 2 * MIN_TILE_FLOPS) {
        bool can_cut_m = m >= 2 * MIN_BLOCKS * rows;
        bool can_cut_n = n >= 2 * MIN_BLOCKS * cols;
        if (!can_cut_m && !can_cut_n) {
            break;
        }
        if (can_cut_m && (m >= n || !can_cut_n)) {
            m = half(m, rows);
        } else {
            n = half(n, cols);
        }
        num = num_blocks(g->m, m) * num_blocks(g->n, n);
    }
    return (struct tiling){.g = g, .tile_m = m, .tile_n = n, .num_n = num_blocks(g->n, n)};
}

/* What the product's sum is added to. */
static void copy_c0(const struct gemm_args *g, int64_t i0, int64_t j0, int64_t m, int64_t n)
{
    if (!g->c0 || g->c0 == g->c || g->beta == 0) {
        return;
    }
    for (int64_t i = i0; i < i0 + m; i++) {
        int64_t at = i * g->ldc + j0;
        memcpy((real *)g->c + at, (const real *)g->c0 + at, (size_t)n * sizeof(real));
    }
}

static void add_row(real *c, const elem *bias, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        c[j] += elem_load(bias[j]);
    }
}

/* What comes behind the product, on a tile that was just written. */
static void finish(const struct gemm_args *g, int64_t i0, int64_t j0, int64_t m, int64_t n)
{
    for (int64_t i = i0; i < i0 + m; i++) {
        int64_t at = i * g->ldc + j0;
        real *c = (real *)g->c + at;
        if (g->bias) {
            add_row(c, (const elem *)g->bias + j0, n);
        }
        if (g->gelu) {
            real *y = (real *)g->gelu + at;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                y[j] = gelu(c[j]);
            }
        }
        if (g->gelu_of) {
            const real *x = (const real *)g->gelu_of + at;
#pragma omp simd
            for (int64_t j = 0; j < n; j++) {
                c[j] *= gelu_slope(x[j]);
            }
        }
    }
}

#if ELEM_IS_BF16
/* A part of a tile whose sums are made on the side, in fp32, before they are rounded. */
#define PART_ROWS 112
#define PART_COLS 256

/* A row of sums to where it belongs. */
static void put_row(const struct gemm_args *g, int64_t at, int64_t j0, real *sum, int64_t n)
{
    elem *c = (elem *)g->c + at;
    if (g->beta != 0) {
        const elem *c0 = (const elem *)(g->c0 ? g->c0 : g->c) + at;
        real beta = (real)g->beta;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            sum[j] += beta * elem_load(c0[j]);
        }
    }
    if (g->bias) {
        add_row(sum, (const elem *)g->bias + j0, n);
    }
    if (g->gelu_of) {
        const elem *x = (const elem *)g->gelu_of + at;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            sum[j] *= gelu_slope(elem_load(x[j]));
        }
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        c[j] = elem_store(sum[j]);
    }
    if (g->gelu) {
        elem *y = (elem *)g->gelu + at;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            y[j] = elem_store(gelu(elem_load(c[j])));
        }
    }
}

static void round_tile(const struct gemm_args *g, struct view a, struct view b, int64_t i0,
                       int64_t j0, int64_t m, int64_t n)
{
    real sum[PART_ROWS * PART_COLS] __attribute__((aligned(64)));
    for (int64_t j = 0; j < n; j += PART_COLS) {
        for (int64_t i = 0; i < m; i += PART_ROWS) {
            int64_t rows = min_i64(PART_ROWS, m - i);
            int64_t cols = min_i64(PART_COLS, n - j);
            OP(multiply)
            (rows, cols, g->k, (real)g->alpha, view_from(a, i, 0), view_from(b, 0, j), 0, sum,
             PART_COLS);
            for (int64_t r = 0; r < rows; r++) {
                put_row(g, (i0 + i + r) * g->ldc + j0 + j, j0 + j, sum + r * PART_COLS, cols);
            }
        }
    }
}
#endif

static void gemm_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tiling *t = arg;
    const struct gemm_args *g = t->g;
    int64_t i = task / t->num_n * t->tile_m;
    int64_t j = task % t->num_n * t->tile_n;
    int64_t m = min_i64(t->tile_m, g->m - i);
    int64_t n = min_i64(t->tile_n, g->n - j);
    struct view a = {g->a, g->trans_a ? 1 : g->lda, g->trans_a ? g->lda : 1, !ELEM_IS_BF16};
    struct view b = {g->b, g->trans_b ? 1 : g->ldb, g->trans_b ? g->ldb : 1, !ELEM_IS_BF16};
    a = view_from(a, i, 0);
    b = view_from(b, 0, j);
#if ELEM_IS_BF16
    if (g->c_type == DTYPE_BF16) {
        round_tile(g, a, b, i, j, m, n);
        return;
    }
#endif
    copy_c0(g, i, j, m, n);
    OP(multiply)
    (m, n, g->k, (real)g->alpha, a, b, (real)g->beta, (real *)g->c + i * g->ldc + j, g->ldc);
    finish(g, i, j, m, n);
}

void OP(gemm)(struct pool *pool, const void *args)
{
    const struct gemm_args *g = args;
    if (g->m == 0 || g->n == 0) {
        return;
    }
    struct tiling t = tiling_of(g, pool_num_threads(pool));
    pool_run(pool, num_blocks(g->m, t.tile_m) * t.num_n, gemm_task, &t);
}
