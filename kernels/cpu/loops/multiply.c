/* A small block of C is held in registers while k runs. Columns of B are packed into panels that
 * stay in the second-level cache, the block's rows of A into the first.
 * Source of the scheme: Goto & van de Geijn 2008, with the roles of A and B exchanged. */
#include "kernels/cpu/loops/multiply.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/cpu/loops/block.h"
#include "kernels/cpu/loops/transpose.h"
#include "kernels/host/variant/watch.h"

/* The register block: MAX_ROWS x COLS of C in MAX_ROWS * 2 registers. Two more hold B, one A. */
#if VEC_BYTES == 64
#define MAX_ROWS 14
#elif VEC_BYTES == 32
#define MAX_ROWS 6
#else
#define MAX_ROWS 4
#endif
#define COLS (2 * VEC_LANES)

/* A panel of B, MAX_DEPTH x COLS, passes through the first-level cache beside the rows of A; the
 * panels of a block stay in the second. */
#define MAX_DEPTH 256
#define MAX_PANELS 8
/* Products that one chain of additions sums up; the chains' sums are added. Short chains round
 * less: it takes a third off the error of fp32 gradients. */
#define SUM_DEPTH 32
/* Distance of packed rows of A: not a multiple of the cache's. */
#define PACKED_ROW (MAX_DEPTH + VEC_LANES)

#define INLINE static inline __attribute__((always_inline))

/* Rows of A as register blocks read them. */
struct rows {
    const real *at;
    int64_t row, col;
};

/* Where a register block goes, and how: c = alpha * sum + beta * c. */
struct target {
    real *c;
    int64_t ldc;
    real alpha, beta;
};

/* total += a * panel over depth of k. rows and num_vecs are constants at each place where this is
 * inlined, so that sum is registers. */
INLINE void add_products(int rows, int num_vecs, int64_t depth, const real *at, struct rows a,
                         const real *panel, vec total[MAX_ROWS][2])
{
    vec sum[MAX_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        sum[i][0] = (vec){0};
        sum[i][1] = (vec){0};
    }
    for (int64_t p = 0; p < depth; p++) {
        vec b0 = *(const vec *)panel;
        vec b1 = *(const vec *)(panel + VEC_LANES);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            real x = at[i * a.row];
            sum[i][0] += x * b0;
            if (num_vecs == 2) {
                sum[i][1] += x * b1;
            }
        }
        panel += COLS;
        at += a.col;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        total[i][0] += sum[i][0];
        if (num_vecs == 2) {
            total[i][1] += sum[i][1];
        }
    }
}

INLINE void register_block(int rows, int num_vecs, int64_t depth, struct rows a, const real *panel,
                           const struct target *t)
{
    vec total[MAX_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        total[i][0] = (vec){0};
        total[i][1] = (vec){0};
    }
    /* C is on its way while k runs. */
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(t->c + i * t->ldc, 1);
        __builtin_prefetch(t->c + i * t->ldc + VEC_LANES, 1);
    }
    for (int64_t p = 0; p < depth; p += SUM_DEPTH) {
        add_products(rows, num_vecs, min_i64(SUM_DEPTH, depth - p), a.at + p * a.col, a,
                     panel + p * COLS, total);
    }
    real alpha = t->alpha;
    real beta = t->beta;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        vec *c = (vec *)(t->c + i * t->ldc);
        c[0] = beta == 0 ? alpha * total[i][0] : alpha * total[i][0] + beta * c[0];
        if (num_vecs == 2) {
            c[1] = beta == 0 ? alpha * total[i][1] : alpha * total[i][1] + beta * c[1];
        }
    }
}

/* One loop a number of rows; narrow: only the first half of the columns. */
static void multiply_rows(int64_t rows, bool narrow, int64_t depth, struct rows a,
                          const real *panel, const struct target *t)
{
    switch (narrow ? -rows : rows) {
#define ROWS(n)                                                                                    \
    case n:                                                                                        \
        register_block(n, 2, depth, a, panel, t);                                                  \
        break;                                                                                     \
    case -n:                                                                                       \
        register_block(n, 1, depth, a, panel, t);                                                  \
        break;
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
#if MAX_ROWS >= 6
        ROWS(5)
        ROWS(6)
#endif
#if MAX_ROWS >= 14
        ROWS(7)
        ROWS(8)
        ROWS(9)
        ROWS(10)
        ROWS(11)
        ROWS(12)
        ROWS(13)
        ROWS(14)
#endif
#undef ROWS
    default:
        break;
    }
}

/* A register block whose columns don't all exist: through a whole one on the side. */
static void multiply_part(int64_t rows, int64_t cols, int64_t depth, struct rows a,
                          const real *panel, const struct target *t)
{
    real whole[MAX_ROWS * COLS] __attribute__((aligned(64)));
    struct target aside = {.c = whole, .ldc = COLS, .alpha = 1, .beta = 0};
    multiply_rows(rows, cols < VEC_LANES, depth, a, panel, &aside);
    for (int64_t i = 0; i < rows; i++) {
        real *c = t->c + i * t->ldc;
        const real *sum = whole + i * COLS;
        real alpha = t->alpha;
        real beta = t->beta;
        if (beta == 0) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                c[j] = alpha * sum[j];
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                c[j] = alpha * sum[j] + beta * c[j];
            }
        }
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* n numbers that lie side by side in v, from its first on. */
INLINE void take(real *out, struct view v, int64_t offset, int64_t n)
{
    if (v.wide || !ELEM_IS_BF16) {
        memcpy(out, (const real *)v.at + offset, (size_t)n * sizeof *out);
        return;
    }
    const elem *from = (const elem *)v.at + offset;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i] = elem_load(from[i]);
    }
}

/* out [VEC_LANES, COLS] = that many columns of b from entry (p, j) on, which lie as rows. */
INLINE void pack_square(real *out, struct view b, int64_t p, int64_t j)
{
    int64_t offset = j * b.col + p;
    if (b.wide || !ELEM_IS_BF16) {
        transpose_square(out, COLS, (const real *)b.at + offset, b.col);
        return;
    }
    real square[VEC_LANES * VEC_LANES] __attribute__((aligned(64)));
    for (int64_t l = 0; l < VEC_LANES; l++) {
        take(square + l * VEC_LANES, b, offset + l * b.col, VEC_LANES);
    }
    transpose_square(out, COLS, square, VEC_LANES);
}

/* out [depth, COLS] = columns of b that lie in memory as rows. */
static void pack_transposed(real *out, struct view b, int64_t depth, int64_t cols)
{
    for (int64_t j = 0; j < cols; j += VEC_LANES) {
        int64_t p = 0;
        for (; j + VEC_LANES <= cols && p + VEC_LANES <= depth; p += VEC_LANES) {
            pack_square(out + p * COLS + j, b, p, j);
        }
        for (; p < depth; p++) {
            for (int64_t l = 0; l < min_i64(VEC_LANES, cols - j); l++) {
                take(out + p * COLS + j + l, b, (j + l) * b.col + p, 1);
            }
        }
    }
}

/* out [depth, COLS] = columns of b, zeros behind the last. */
static void pack_panel(real *out, struct view b, int64_t depth, int64_t cols)
{
    if (cols < COLS) {
        memset(out, 0, (size_t)(depth * COLS) * sizeof *out);
    }
    if (b.col != 1) {
        pack_transposed(out, b, depth, cols);
    } else if (cols == COLS) {
        for (int64_t p = 0; p < depth; p++) {
            take(out + p * COLS, b, p * b.row, COLS);
        }
    } else {
        for (int64_t p = 0; p < depth; p++) {
            take(out + p * COLS, b, p * b.row, cols);
        }
    }
}

/* Rows of a, close together: as they lie, or one after the other for each k; those of the next
 * block are on their way then, which the processor can't guess from so short pieces. num_left: rows
 * that follow in a, these included; copies of a fixed size are faster. */
static struct rows pack_rows(real *out, struct view a, int64_t rows, int64_t num_left,
                             int64_t depth)
{
    if (a.row != 1) {
        for (int64_t i = 0; i < rows; i++) {
            take(out + i * PACKED_ROW, a, i * a.row, depth);
        }
        return (struct rows){out, PACKED_ROW, 1};
    }
    for (int64_t p = 0; p < depth; p++) {
        __builtin_prefetch(view_from(a, 2 * rows - 1, p).at, 0, 2);
        if (num_left >= MAX_ROWS) {
            take(out + p * MAX_ROWS, a, p * a.col, MAX_ROWS);
        } else {
            take(out + p * MAX_ROWS, a, p * a.col, rows);
        }
    }
    return (struct rows){out, 1, MAX_ROWS};
}

/* A block of rows with one panel. */
static void multiply_panel(int64_t rows, int64_t cols, int64_t depth, struct rows a,
                           const real *panel, const struct target *t)
{
    if (cols == COLS || cols == VEC_LANES) {
        multiply_rows(rows, cols == VEC_LANES, depth, a, panel, t);
    } else {
        multiply_part(rows, cols, depth, a, panel, t);
    }
}

/* One block of k and of columns: B's panels are packed, all rows of C get their share. */
static void multiply_block(int64_t m, int64_t n, int64_t depth, struct view a, struct view b,
                           struct target t)
{
    real panels[MAX_PANELS * MAX_DEPTH * COLS] __attribute__((aligned(64)));
    real packed[MAX_ROWS * PACKED_ROW];
    int64_t num_panels = num_blocks(n, COLS);
    for (int64_t j = 0; j < num_panels; j++) {
        pack_panel(panels + j * depth * COLS, view_from(b, 0, j * COLS), depth,
                   min_i64(COLS, n - j * COLS));
    }
    /* Blocks of equal height: a last one of few rows would be slow. */
    int64_t rows = num_blocks(m, num_blocks(m, MAX_ROWS));
    real *c = t.c;
    for (int64_t i = 0; i < m; i += rows) {
        int64_t num_rows = min_i64(rows, m - i);
        struct view from = view_from(a, i, 0);
        struct rows part = {from.at, a.row, a.col};
        if (num_panels >= 2 || (ELEM_IS_BF16 && !a.wide)) {
            part = pack_rows(packed, from, num_rows, m - i, depth);
        }
        for (int64_t j = 0; j < num_panels; j++) {
            t.c = c + i * t.ldc + j * COLS;
            multiply_panel(num_rows, min_i64(COLS, n - j * COLS), depth, part,
                           panels + j * depth * COLS, &t);
        }
    }
}

static void scale_only(int64_t m, int64_t n, real beta, real *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
        }
    }
}

/* A factor [rows, cols], as it lies in memory. */
static void watch_view(struct view v, int64_t rows, int64_t cols)
{
    size_t size = v.wide ? sizeof(real) : sizeof(elem);
    if (v.col == 1) {
        watch_read(v.at, rows, cols, v.row, size);
    } else {
        watch_read(v.at, cols, rows, v.col, size);
    }
}

void OP(multiply)(int64_t m, int64_t n, int64_t k, real alpha, struct view a, struct view b,
                  real beta, real *c, int64_t ldc)
{
    watch_view(a, m, k);
    watch_view(b, k, n);
    watch_read(c, beta == 0 ? 0 : m, n, ldc, sizeof *c);
    watch_write(c, m, n, ldc, sizeof *c);
    if (k == 0) {
        scale_only(m, n, beta, c, ldc);
        return;
    }
    if (m == 0) {
        return;
    }
    int64_t depth = num_blocks(k, num_blocks(k, MAX_DEPTH));
    for (int64_t j = 0; j < n; j += MAX_PANELS * COLS) {
        int64_t cols = min_i64(MAX_PANELS * COLS, n - j);
        for (int64_t p = 0; p < k; p += depth) {
            struct view a_part = view_from(a, 0, p);
            struct view b_part = view_from(b, p, j);
            struct target t = {.c = c + j, .ldc = ldc, .alpha = alpha, .beta = p == 0 ? beta : 1};
            multiply_block(m, cols, min_i64(depth, k - p), a_part, b_part, t);
        }
    }
}

int64_t OP(multiply_rows)(void)
{
    return MAX_ROWS;
}

int64_t OP(multiply_cols)(void)
{
    return COLS;
}
