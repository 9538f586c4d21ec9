/* bf16: the upper half of an f32. Stores round to the nearest, ties to even. */
#ifndef TANDEM_KERNELS_HOST_BF16_H
#define TANDEM_KERNELS_HOST_BF16_H

#include <stdint.h>
#include <string.h>

/* A NaN stays one. No branches, so that loops of it become vectors. */
static inline uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

static inline float bf16_float(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
