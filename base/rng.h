/* Counter-based random numbers: a draw is a function of (seed, stream, index) and of nothing else,
 * so no layout and no order of calls changes it.
 * Source: Salmon et al. 2011, Philox4x32 with 10 rounds. */
#ifndef TANDEM_BASE_RNG_H
#define TANDEM_BASE_RNG_H

#include <stdint.h>

/* Four 32-bit words for one 128-bit counter under one 64-bit key. */
void rng_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A stream number for a name (64-bit FNV-1a). */
uint64_t rng_stream(const char *name);

/* 64 random bits. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal (Box-Muller in double; one draw an index). */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* A pseudo-random permutation of 0..n-1, n >= 1: the image of i < n under the key (seed, stream).
 * Bijective for each key; O(1) memory (Feistel network with cycle walking). */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);

#endif
