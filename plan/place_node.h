/* Gangs that one host has to start: all of their devices lie on one node. */
#ifndef TANDEM_PLAN_PLACE_NODE_H
#define TANDEM_PLAN_PLACE_NODE_H

#include "plan/place_layout.h"

/* Has the node to be looked for? Not where one alone is allowed. */
static inline bool place_node_open(const struct place_request *r)
{
    return r->one_node && r->num_nodes != 1;
}

bool place_node_fits(const struct free_map *m, const struct place_request *r,
                     const struct place_layout *l);
/* As place_find. Of the nodes with room those with the least free are tried, a few, and the best
 * score is taken. */
enum place_result place_node_find(const struct free_map *m, const struct place_request *r,
                                  const struct place_layout *l, int32_t *devices,
                                  PlacementScore *score, struct place_lack *lack);

#endif
