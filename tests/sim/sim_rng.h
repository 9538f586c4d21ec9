/* The one source of chance of a simulation: splitmix64. Cheap, and the whole run follows from its
 * first state. */
#ifndef TANDEM_TESTS_SIM_RNG_H
#define TANDEM_TESTS_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct sim_rng {
    uint64_t state;
};

static inline uint64_t sim_rng_u64(struct sim_rng *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* lo <= result <= hi. */
static inline int64_t sim_rng_between(struct sim_rng *r, int64_t lo, int64_t hi)
{
    return hi <= lo ? lo : lo + (int64_t)(sim_rng_u64(r) % (uint64_t)(hi - lo + 1));
}

static inline double sim_rng_unit(struct sim_rng *r)
{
    return (double)(sim_rng_u64(r) >> 11) * 0x1.0p-53;
}

static inline bool sim_rng_chance(struct sim_rng *r, double p)
{
    return p > 0 && sim_rng_unit(r) < p;
}

/* Mostly short, sometimes up to hi: how delays are. */
static inline int64_t sim_rng_delay(struct sim_rng *r, int64_t lo, int64_t hi)
{
    double u = sim_rng_unit(r);
    return lo + (int64_t)((double)(hi - lo) * u * u * u * u);
}

#endif
