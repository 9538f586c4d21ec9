/* The layouts that sweeps go over: each factor has a few values, and what doesn't fit together
 * (heads and tensor ranks, a batch and data ranks) is left out. */
#ifndef TANDEM_TESTS_PARALLEL_LAYOUTS_H
#define TANDEM_TESTS_PARALLEL_LAYOUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "gang.h"
#include "shapes.h"

enum layout_factor {
    FACTOR_SHAPE,
    FACTOR_DATA,
    FACTOR_TENSOR,
    FACTOR_ZERO,
    FACTOR_SHARD,
    FACTOR_MICRO,
    FACTOR_SEQUENCE,
    FACTOR_BUCKET,
    FACTOR_OPTIMIZER,
    FACTOR_CLIP,
    FACTOR_PACKED,
    NUM_FACTORS,
};
/* The values of the first ones exclude one another; any value of the others goes with all. */
#define NUM_BOUND_FACTORS FACTOR_SEQUENCE

/* One value of each factor, 0 <= value < layout_num_values(factor). */
struct layout {
    int values[NUM_FACTORS];
};

int layout_num_values(int factor);
bool layout_is_feasible(const struct layout *l);
/* All feasible ones with value 0 in the free factors; *num of them, the caller frees. */
struct layout *layout_list_bound(int *num);
/* A feasible one, by seed. */
struct layout layout_draw(uint64_t seed);
/* Its number: TANDEM_LAYOUT=N runs that one alone. */
int64_t layout_number(const struct layout *l);
struct layout layout_from_number(int64_t number);

/* As gang_spec: the strings are files' and literals. */
struct gang_spec layout_spec(const struct layout *l, const struct shape_files *files);
/* The same sums on one rank. */
struct gang_spec layout_one_rank(const struct layout *l, const struct shape_files *files);
int64_t layout_num_ranks(const struct layout *l);
/* "llama, data 2, tensor 3, zero_stage 3, ...", in a buffer that the next call writes again. */
const char *layout_words(const struct layout *l);

#endif
