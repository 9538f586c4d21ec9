/* Ranks and axes: rank = ((data * P + pipeline) * C + context) * T + tensor. The expert axis is
 * carved from data x context: e neighbours in the count data * C + context share all experts. */
#ifndef TANDEM_PLAN_MESH_H
#define TANDEM_PLAN_MESH_H

#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

#define MESH_MAX_RANKS 131072

struct mesh_coord {
    int32_t data, pipeline, context, tensor;
};

/* Sizes from a checked layout; fills out->num_ranks. */
int mesh_init(Mesh *out, const ParallelSpec *layout, struct error *err);
struct mesh_coord mesh_coord(const Mesh *mesh, int32_t rank);
int32_t mesh_rank(const Mesh *mesh, struct mesh_coord coord);
/* The ranks that share an axis group with rank, ascending, into ranks[size of the axis]; returns
 * the count. */
int32_t mesh_group(const Mesh *mesh, Axis axis, int32_t rank, int32_t *ranks);

#endif
