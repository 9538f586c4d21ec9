/* Which devices of a fabric may be taken, with counts for each domain and switch, so that a place
 * for a gang is found without a look at every device. A value of the scheduler's: copied for a
 * "what if", taken from and given back to. */
#ifndef TANDEM_PLAN_FREE_MAP_H
#define TANDEM_PLAN_FREE_MAP_H

#include "plan/fabric.h"
#include "plan/free_counts.h"

struct free_map;

/* All devices are free. f is borrowed for its life. */
struct free_map *free_map_new(const struct fabric *f);
struct free_map *free_map_copy(const struct free_map *m);
/* m becomes as from is; both of one fabric. Cheaper than a copy. */
void free_map_set(struct free_map *m, const struct free_map *from);
void free_map_free(struct free_map *m);
const struct fabric *free_map_fabric(const struct free_map *m);

bool free_map_has(const struct free_map *m, int32_t device);
/* False: nothing changed, it was taken (free) already. */
bool free_map_take(struct free_map *m, int32_t device);
bool free_map_give(struct free_map *m, int32_t device);
int32_t free_map_num(const struct free_map *m);
/* Free ones of a type; -1 = any. */
int32_t free_map_num_type(const struct free_map *m, int32_t type);
/* The first free device of from <= d < end; -1 = none. All of a part:
 *   for (d = free_map_next(m, first, end); d >= 0; d = free_map_next(m, d + 1, end)) */
int32_t free_map_next(const struct free_map *m, int32_t from, int32_t end);
/* By domain and leaf; m's own. */
const struct free_counts *free_map_counts(const struct free_map *m);

#endif
