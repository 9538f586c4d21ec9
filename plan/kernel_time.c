/* The predicted time of a launch. */
#include <math.h>

#include "plan/kernel_rates.h"

/* ---- products ------------------------------------------------------------------------------- */

/* Tiles that a library chooses from, and what each loses against the largest; columns of k that
 * filling and emptying a tile's pipeline costs. */
static const struct {
    int64_t m, n;
    double share;
} tiles[] = {
    {256, 128, 1}, {128, 256, 1}, {128, 128, 0.90}, {128, 64, 0.72}, {64, 128, 0.72}, {64, 64, 0.5},
};
static const int64_t splits[] = {1, 2, 4, 8, 16};
#define TILE_K 64
#define TILE_ENDS 192
#define NUM(list) (sizeof(list) / sizeof *(list))

static int64_t pieces(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

double kernel_gemm_share(const struct kernel_rates *r, int64_t m, int64_t n, int64_t k)
{
    double best = 0, useful = (double)m * (double)n * (double)k;
    if (!r->gpu) {
        return 1;
    }
    for (size_t i = 0; i < NUM(tiles); i++) {
        for (size_t j = 0; j < NUM(splits); j++) {
            int64_t part = pieces(pieces(k, splits[j]), TILE_K) * TILE_K;
            int64_t num = pieces(m, tiles[i].m) * pieces(n, tiles[i].n) * splits[j];
            double waves = (double)pieces(num, r->multiprocessors) * r->multiprocessors;
            double done = waves * (double)(tiles[i].m * tiles[i].n) * (double)(part + TILE_ENDS);
            double share = tiles[i].share * useful / done;
            /* Parts of a sum are written and read once more. */
            share *= splits[j] > 1 ? 0.95 : 1;
            best = share > best ? share : best;
        }
    }
    return best;
}

static double gemm_s(const struct kernel_rates *r, const struct launch *l)
{
    double share = r->gemm * kernel_gemm_share(r, l->size[0], l->size[1], l->size[2]);
    return l->flops / (r->peak * share * (l->even ? 1 : r->uneven));
}

/* ---- attention ------------------------------------------------------------------------------ */

#define ATTENTION_TILE 64

/* Published rates count 5 products backward, of which one, the scores, is computed anew: 5 / 4 of
 * what counts for MFU. Tiles on the diagonal are computed whole. */
static double attention_s(const struct kernel_rates *r, const struct launch *l)
{
    bool backward = l->op == LAUNCH_ATTENTION_BWD, wide = l->size[4] > 64;
    double t = (double)l->size[1], head = (double)l->size[4];
    bool cudnn = r->attention == KERNEL_ATTENTION_CUDNN ||
                 (r->attention == KERNEL_ATTENTION_AUTO && !backward);
    double rate = backward ? r->own_backward[wide] : r->own_forward[wide];
    double diagonal = r->gpu && t > 1 ? (t + ATTENTION_TILE) / (t + 1) : 1;
    if (cudnn && l->size[4] % 8 == 0 && l->size[4] <= 128) {
        rate = kernel_rates_cudnn(r, t, head, backward);
        diagonal = 1; /* is in the published figure */
    }
    return l->flops * (backward ? 1.25 : 1) * diagonal / rate;
}

/* ---- collectives ---------------------------------------------------------------------------- */

static double comm_s(const Plan *plan, const struct launch *l)
{
    double n = (double)l->size[1], steps = ceil(log2(n));
    for (size_t i = 0; i < plan->n_groups; i++) {
        const AxisGroup *g = plan->groups[i];
        if (g->axis == l->axis && g->bytes_per_s > 0) {
            return l->bytes / g->bytes_per_s +
                   (l->op == LAUNCH_ALL_REDUCE ? 2 : 1) * steps * g->latency_s;
        }
    }
    return 0;
}

/* ---- any ------------------------------------------------------------------------------------ */

double kernel_time(const struct kernel_rates *r, const Plan *plan, const struct launch *l,
                   enum kernel_bound *bound)
{
    enum launch_kind kind = launch_kind(l);
    double fixed = l->num_kernels * (l->captured ? r->captured_s : r->direct_s), work;
    if (kind == LAUNCH_KIND_COMM) {
        work = comm_s(plan, l);
        *bound = work > fixed ? KERNEL_BOUND_NETWORK : KERNEL_BOUND_LAUNCH;
        return work + fixed;
    }
    bool host = l->op == LAUNCH_UPLOAD || l->op == LAUNCH_DOWNLOAD;
    double memory = l->bytes / (host ? r->link_bytes_per_s : r->bytes_per_s), compute = 0;
    if (kind == LAUNCH_KIND_GEMM) {
        compute = gemm_s(r, l);
    } else if (kind == LAUNCH_KIND_ATTENTION) {
        compute = attention_s(r, l);
    }
    work = compute > memory ? compute : memory;
    *bound = fixed > work        ? KERNEL_BOUND_LAUNCH
             : compute >= memory ? KERNEL_BOUND_COMPUTE
                                 : KERNEL_BOUND_MEMORY;
    return work + fixed;
}
