#include "base/rng.h"

#include <math.h>

#include "base/error.h"

void rng_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t rng_stream(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) {
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    }
    return h;
}

static void draw(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    rng_philox4x32(counter, key, out);
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    draw(seed, stream, index, w);
    return (uint64_t)w[0] | (uint64_t)w[1] << 32;
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    draw(seed, stream, index, w);
    uint64_t a = (uint64_t)w[0] | (uint64_t)w[1] << 32;
    uint64_t b = (uint64_t)w[2] | (uint64_t)w[3] << 32;
    double u = ((double)(a >> 11) + 1.0) * 0x1p-53; /* (0, 1] */
    double v = (double)(b >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(2.0 * 3.14159265358979323846 * v);
}

uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i)
{
    ASSERT(i < n);
    unsigned half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) {
        half++;
    }
    uint64_t mask = half == 32 ? 0xFFFFFFFFu : ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t f = rng_u64(seed, stream, right | round << 60) & mask;
            uint64_t next = left ^ f;
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
