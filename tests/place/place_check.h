/* An opinion of its own on placements: shares no code with plan/place*.c. Groups follow from
 * rank = ((data * P + pipeline) * C + context) * T + tensor and from the fabric's parts alone. */
#ifndef TANDEM_TESTS_PLACE_CHECK_H
#define TANDEM_TESTS_PLACE_CHECK_H

#include "plan/place.h"

#define CHECK_PARTS 7
extern const char *const check_part_names[CHECK_PARTS];

/* In the order of PlacementScore. */
struct check_score {
    int64_t part[CHECK_PARTS];
};

/* The rules one by one, then the score; NULL or what is wrong. Devices: different, in range, free,
 * of one type that was asked for, on allowed nodes, with the memory; tensor groups in one domain.
 */
const char *check_placement(const struct free_map *m, const struct place_request *r,
                            const int32_t *devices, struct check_score *score);
/* -1, 0, 1; *part: the first that differs. */
int check_compare(const struct check_score *a, const struct check_score *b, int *part);
struct check_score check_of(const PlacementScore *score);

/* By trying all ways: is there a place, and which score has the best one? May device d be used? */
bool check_best(const struct free_map *m, const struct place_request *r, struct check_score *best);
bool check_allowed(const struct free_map *m, const struct place_request *r, int32_t device);
/* Tensor groups that fit into what is free, or into all; of the type that has room for most. */
int32_t check_groups(const struct free_map *m, const struct place_request *r, bool whole);

#endif
