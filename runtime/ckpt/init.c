#include "runtime/ckpt/ckpt.h"

#include <math.h>

#include "base/rng.h"

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

static void store(const struct ckpt_state *s, int64_t at, double v)
{
    if (s->dtype == DTYPE_F64) {
        ((double *)s->weights)[at] = v;
    } else {
        ((float *)s->weights)[at] = (float)v;
    }
}

void ckpt_init_random(const struct ckpt_state *s, uint64_t seed)
{
    ASSERT(s->dtype == DTYPE_F32 || s->dtype == DTYPE_F64);
    for (int32_t k = 0; k < s->table->num_params; k++) {
        const struct param *p = &s->table->params[k];
        if (p->init_ones) {
            for (int64_t i = 0; i < p->numel; i++) {
                store(s, p->offset + i, 1.0);
            }
            continue;
        }
        uint64_t stream = rng_stream(p->name);
        for (int64_t i = 0; i < p->numel; i += 2) {
            double pair[2];
            draw_pair(seed, stream, (uint64_t)i / 2, pair);
            store(s, p->offset + i, pair[0] * p->init_std);
            if (i + 1 < p->numel) {
                store(s, p->offset + i + 1, pair[1] * p->init_std);
            }
        }
    }
}
