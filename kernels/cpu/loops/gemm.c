/* Matrix products through the BLAS library, one thread a tile of C. A tile spans all of k, so its
 * bits do not depend on who computes it. */
#include "kernels/host/variant/variant.h"

#include "kernels/cpu/loops/blas.h"
#include "kernels/cpu/loops/block.h"

/* Halves C until there are MAX_TILES tiles, or they are as small as a library call should be: each
 * tile packs its part of A and B anew. */
#define MAX_TILES 16
#define MIN_TILE_FLOPS 8e6
#define MIN_TILE_SIDE 64

struct tiling {
    const struct gemm_args *g;
    int64_t tile_m, tile_n;
    int64_t num_n;
};

static struct tiling tiling_of(const struct gemm_args *g)
{
    int64_t m = g->m;
    int64_t n = g->n;
    int64_t num = 1;
    while (num < MAX_TILES && 2.0 * (double)m * (double)n * (double)g->k >= 2 * MIN_TILE_FLOPS &&
           max_i64(m, n) >= 2 * MIN_TILE_SIDE) {
        int64_t *side = m >= n ? &m : &n;
        *side = num_blocks(num_blocks(*side, 2), MIN_TILE_SIDE) * MIN_TILE_SIDE;
        num = num_blocks(g->m, m) * num_blocks(g->n, n);
    }
    return (struct tiling){.g = g, .tile_m = m, .tile_n = n, .num_n = num_blocks(g->n, n)};
}

static void gemm_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const struct tiling *t = arg;
    const struct gemm_args *g = t->g;
    int64_t i = task / t->num_n * t->tile_m;
    int64_t j = task % t->num_n * t->tile_n;
    const real *a = (const real *)g->a + (g->trans_a ? i : i * g->lda);
    const real *b = (const real *)g->b + (g->trans_b ? j * g->ldb : j);
    blas_gemm(g->trans_a, g->trans_b, min_i64(t->tile_m, g->m - i), min_i64(t->tile_n, g->n - j),
              g->k, (real)g->alpha, a, g->lda, b, g->ldb, (real)g->beta,
              (real *)g->c + i * g->ldc + j, g->ldc);
}

void OP(gemm)(struct pool *pool, const void *args)
{
    const struct gemm_args *g = args;
    if (g->m == 0 || g->n == 0) {
        return;
    }
    struct tiling t = tiling_of(g);
    pool_run(pool, num_blocks(g->m, t.tile_m) * t.num_n, gemm_task, &t);
}
