/* A gang's devices: which of the free ones, and which rank on which.
 *
 * Hard rules: all devices are of one type; a tensor group lies in one fast domain; where it is
 * asked for, all devices lie on one node. Then, each
 * among equals of those before it: few expert groups leave a domain, few context groups, few
 * shards of hybrid sharding; neighbouring stages share a leaf; few leaves, few domains; little is
 * left broken up in the domains touched (best fit). PlacementScore says how far that came.
 *
 * What is promised (tests/place tries all ways on small clusters): a place is found if there is
 * one; no placement breaks fewer expert groups or, of those, fewer context groups; where nothing
 * has to be broken, no placement has a better score, as long as the choice is small (some hundred
 * cells and atoms, plan/place_kinds.h); a larger one has the fewest leaves, and in each the fewest
 * domains. Where something has to be broken, the parts behind it may be worse than the best.
 *
 * Pure: the same input gives the same devices. */
#ifndef TANDEM_PLAN_PLACE_H
#define TANDEM_PLAN_PLACE_H

#include "plan/free_map.h"

/* What a gang asks for. Sizes as in Mesh; expert is carved from data x context: either divides the
 * other. shard: ranks of the data axis that share one shard and talk most; 0 or 1 = none. */
struct place_request {
    int32_t data, pipeline, context, tensor, expert, shard;
    const char *type;         /* "any" or a type's name; borrowed */
    bool cpu_only;            /* the backend runs on CPU devices only */
    bool gpu_only;            /* ... on others only */
    bool one_node;            /* all devices on one node: one host starts the gang */
    const char *const *nodes; /* allowed ones; borrowed; num_nodes 0 = all */
    size_t num_nodes;
    int64_t mem_bytes; /* a device with less is not used (0 = not known is); 0 = any */
    /* Nor a GPU of a type with less, ten times its compute capability (not known is); 0 = any. */
    int32_t capability;
};

enum place_result {
    PLACE_OK,
    PLACE_FEW,        /* too few suitable devices are free */
    PLACE_FRAGMENTED, /* enough, but not so many together: see place_lack */
    PLACE_NEVER,      /* not even on the empty cluster */
};

/* Why not. Counts are of suitable devices; where one node has to have all, groups and largest are
 * what one node has at most. */
struct place_lack {
    int32_t need, free, total; /* devices; total: of the fabric, whether free or not */
    int32_t group;             /* devices that have to lie together in a domain */
    int32_t num_groups;        /* how many such groups it needs, */
    int32_t free_groups;       /* how many there is room for now, */
    int32_t total_groups;      /* and how many on the empty cluster */
    int32_t largest; /* most free devices in one domain; num_largest domains have that many */
    int32_t num_largest;
    const char *type;   /* as asked */
    bool one_node;      /* has one to be found? */
    int32_t node_total; /* then: the most that a node has, free or not */
};

/* Fills devices[num_ranks], by rank, and score. lack is filled where the result isn't PLACE_OK.
 * score, lack: may be NULL. */
enum place_result place_find(const struct free_map *m, const struct place_request *r,
                             int32_t *devices, PlacementScore *score, struct place_lack *lack);

/* Could it be placed with these devices free? Quicker: chooses none. */
bool place_fits(const struct free_map *m, const struct place_request *r);

/* By number, which nodes the request names; freed with free. NULL: all are allowed. */
bool *place_named_nodes(const struct fabric *f, const struct place_request *r);

/* The score of a placement that is given, by counting; devices[num_ranks] by rank. m says what
 * stays free beside it; the gang's own devices may be free in it or not; NULL: nothing stays.
 * False: it breaks a hard rule. */
bool place_score(const struct fabric *f, const struct place_request *r, const int32_t *devices,
                 const struct free_map *m, PlacementScore *score);

/* -1, 0, 1: a is better, equal, worse. */
int place_score_compare(const PlacementScore *a, const PlacementScore *b);

/* "fragmented: needs 1 x 8 in a fast domain, has 2 x 4", "needs 8 devices, 4 of 16 are free". */
void place_lack_words(const struct place_lack *lack, enum place_result result, char *out,
                      size_t size);

/* For PLACE_NEVER: the nearest request that fits the empty cluster (fewer data ranks first, then a
 * smaller tensor axis), in the words of a job file: "parallel.data: 3". False: none does. */
bool place_nearest(const struct fabric *f, const struct place_request *r, const JobSpec *spec,
                   char *out, size_t size);

/* Ranks of an axis group that rank is in; ranks[size of the axis]; returns the count. For
 * AXIS_EXPERT, too. */
int32_t place_group(const struct place_request *r, Axis axis, int32_t rank, int32_t *ranks);

#endif
