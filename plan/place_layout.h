/* The order in which a gang's ranks are laid onto the machine. It isn't that of the ranks: expert
 * groups (consecutive data x context indexes) and shards (consecutive data ranks) want to lie
 * together, though pipeline stands between them in a rank's number.
 *
 * A column is one (data, context) index, with all its stages and tensor ranks. Columns are numbered
 * so that each group which wants one fast domain is a block of neighbours, smaller groups within
 * larger ones: levels, inner to outer, each a piece of the context or the data axis. */
#ifndef TANDEM_PLAN_PLACE_LAYOUT_H
#define TANDEM_PLAN_PLACE_LAYOUT_H

#include "plan/place.h"

#define PLACE_LEVELS_MAX 6

struct place_level {
    bool is_data;
    int32_t size, stride;
};

struct place_layout {
    int32_t data, pipeline, context, tensor;
    int32_t num_ranks, num_columns;
    int32_t expert; /* ranks of an expert group; 1 where the sizes don't go together */
    int32_t shard;  /* data ranks of a shard; 1 = none */
    int32_t num_levels;
    struct place_level level[PLACE_LEVELS_MAX];
    /* Columns of a block that wants one domain, the largest first; the last is 1. */
    int32_t num_tiers;
    int32_t tier[PLACE_LEVELS_MAX];
};

/* False: more ranks than any fabric has devices. */
bool place_layout_init(struct place_layout *l, const struct place_request *r);
/* For a gang whose contexts and expert groups are all broken: shards are the blocks. */
void place_layout_shards_first(struct place_layout *l);
void place_layout_column(const struct place_layout *l, int32_t column, int32_t *data,
                         int32_t *context);
static inline int32_t place_layout_rank(const struct place_layout *l, int32_t data,
                                        int32_t pipeline, int32_t context)
{
    return ((data * l->pipeline + pipeline) * l->context + context) * l->tensor;
}

#endif
