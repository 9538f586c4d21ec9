#include "runtime/ckpt/ckpt.h"

#include <math.h>

#include "base/rng.h"
#include "runtime/ckpt/state.h"

/* Two standard normals for elements 2 * pair and 2 * pair + 1 (Box-Muller in double): a pure
 * function of its arguments, so no layout and no order of calls changes a draw. */
static void draw_pair(uint64_t seed, uint64_t stream, uint64_t pair, double out[2])
{
    uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t w[4];
    rng_philox4x32(counter, key, w);
    uint64_t a = (uint64_t)w[0] | (uint64_t)w[1] << 32;
    uint64_t b = (uint64_t)w[2] | (uint64_t)w[3] << 32;
    double u = ((double)(a >> 11) + 1.0) * 0x1p-53; /* (0, 1] */
    double angle = 2.0 * 3.14159265358979323846 * ((double)(b >> 11) * 0x1p-53);
    double radius = sqrt(-2.0 * log(u));
    double sine, cosine;
    sincos(angle, &sine, &cosine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

/* While one parameter is drawn. */
struct draw {
    const struct ckpt_state *state;
    const struct param *param;
    uint64_t seed, stream;
};

static void store(const struct ckpt_state *s, int64_t at, double v)
{
    if (s->dtype == DTYPE_F64) {
        ((double *)s->weights.data)[at] = v;
    } else {
        ((float *)s->weights.data)[at] = (float)v;
    }
}

static int set_ones(void *arg, const struct state_run *run, struct error *err)
{
    const struct draw *d = arg;
    (void)err;
    for (int64_t i = 0; i < run->numel; i++) {
        store(d->state, run->at + i, 1.0);
    }
    return 0;
}

static int draw_run(void *arg, const struct state_run *run, struct error *err)
{
    const struct draw *d = arg;
    (void)err;
    double pair[2] = {0};
    for (int64_t i = 0; i < run->numel; i++) {
        int64_t e = run->whole + i;
        if (i == 0 || e % 2 == 0) {
            draw_pair(d->seed, d->stream, (uint64_t)e / 2, pair);
        }
        store(d->state, run->at + i, pair[e % 2] * d->param->init_std);
    }
    return 0;
}

void ckpt_init_random(const struct ckpt_state *s, uint64_t seed)
{
    ASSERT(s->dtype == DTYPE_F32 || s->dtype == DTYPE_F64);
    for (int32_t k = 0; k < s->table->num_params; k++) {
        const struct param *p = &s->table->params[k];
        struct draw d = {s, p, seed, rng_stream(p->name)};
        state_each(s, &s->weights, p, p->init_ones ? set_ones : draw_run, &d, NULL);
    }
}
