/* What of a free map is counted, so that a place is found without a look at every device: free
 * devices by cell and by leaf, and cells by how much they have free. A cell is the devices of one
 * type in one fast domain (most domains are one cell). Cells of a type are neighbours and in the
 * order of the tree, so that a leaf is a range of them.
 *
 * A leaf here is a leaf switch; a domain without one is its own, with those that share a node. */
#ifndef TANDEM_PLAN_FREE_COUNTS_H
#define TANDEM_PLAN_FREE_COUNTS_H

#include "plan/fabric.h"

/* Of one type. Never changes; shared by copies. */
struct free_cells {
    int32_t num_cells, num_leaves;
    int32_t max_devices; /* of a cell */
    int32_t num_devices;
    int64_t min_mem_bytes, max_mem_bytes; /* of those known; 0 = none is */
    const int32_t *domain;                /* by cell */
    const int32_t *leaf_cell;             /* num_leaves + 1: where a leaf's cells begin */
    const int32_t *leaf_key;              /* free_counts_leaf of each */
    const int32_t *cells_of;              /* cells by devices, free or not: 0 to max_devices */
};

struct free_counts;

/* All devices free. */
struct free_counts *free_counts_new(const struct fabric *f);
struct free_counts *free_counts_copy(const struct free_counts *c);
void free_counts_set(struct free_counts *c, const struct free_counts *from);
void free_counts_free(struct free_counts *c);
/* The caller knows that the device was free (taken). */
void free_counts_take(struct free_counts *c, int32_t device);
void free_counts_give(struct free_counts *c, int32_t device);

const struct free_cells *free_counts_cells(const struct free_counts *c, int32_t type);
/* Free devices of each cell of a type; of each leaf; cells by free devices, 0 to max_devices. */
const int32_t *free_counts_by_cell(const struct free_counts *c, int32_t type);
const int32_t *free_counts_by_leaf(const struct free_counts *c, int32_t type);
const int32_t *free_counts_cells_with(const struct free_counts *c, int32_t type);
int32_t free_counts_num(const struct free_counts *c, int32_t type);
/* In its type. */
int32_t free_counts_cell_of(const struct free_counts *c, int32_t device);

/* Two domains are under one leaf if this is the same: the leaf switch's number, below 0 if it is
 * none. */
int32_t free_counts_leaf(const struct fabric *f, int32_t domain);

#endif
