/* The parameter table of one rank, expanded from a Plan: every parameter with its place in the
 * flat buffers (weights, gradients, optimizer state share one layout).
 *
 * Order = the order in which gradients become ready: unit L+1 first, embed last; a tied embedding
 * lies with unit 0. So a bucket is one contiguous range. Inside a unit those come first whose
 * gradients are complete on a tensor rank, then those to be summed over some of these ranks, then
 * over all: what a partial sum covers is contiguous, too. Offsets are multiples of
 * PARAMS_ALIGN_NUMEL elements; padding, also that at the end of a bucket, is zero and stays zero.
 */
#ifndef TANDEM_PLAN_PARAMS_H
#define TANDEM_PLAN_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

#define PARAMS_ALIGN_NUMEL 16
#define PARAM_NAME_MAX 128
#define PARAM_DIMS_MAX 4
/* Of one stage: far above any model whose layers are dealt out sensibly. */
#define PARAMS_MAX_ROWS (1 << 19)

/* How the gradient of one tensor rank must still be summed. With one tensor rank: not at all. */
enum param_sum {
    PARAM_SUM_NONE,     /* complete: of a shard, or computed alike by all */
    PARAM_SUM_REPLICAS, /* over the tensor ranks that hold the same KV head */
    PARAM_SUM_TENSOR,   /* over all tensor ranks */
};

struct param {
    char name[PARAM_NAME_MAX]; /* Hugging Face's, with the global layer number */
    int32_t unit;              /* forward numbering */
    int64_t layer;             /* -1 outside blocks */
    int32_t def_idx;           /* in plan->params */
    int32_t num_dims;
    int64_t shape[PARAM_DIMS_MAX];       /* true, global */
    int64_t local_shape[PARAM_DIMS_MAX]; /* what this rank holds */
    int64_t numel;                       /* local */
    int64_t offset;                      /* elements from the start of a flat buffer */
    bool decay;
    bool tied;
    bool expert; /* lies over the expert axis */
    double init_std;
    bool init_ones;
    ParamRole role;
    enum param_sum sum;
    bool tensor_shard; /* cut over the tensor axis (where that has one rank, into one piece) */
    int32_t shard_dim;
    int64_t shard_parts, shard_groups; /* as in ParamDef: parts of one group; 0 = anywhere */
    bool on_rows, in_out;
    int32_t bucket;
};

struct param_table {
    struct param *params; /* owned; ready order */
    int32_t num_params;
    int64_t flat_numel; /* padding included */
    int32_t num_buckets;
    int64_t *bucket_offsets; /* owned; element at which each begins */
};

/* The table of one pipeline stage's ranks. All of them have the same shapes; names of experts are
 * those of the first expert rank. Over the tensor axis a split dimension has ceil(rows / T) local
 * rows, the last ranks' padded ones zero and never stored; KV heads with fewer heads than ranks lie
 * on several. A tied embedding stands on the first stage and again on the last one.
 *
 * Where the stage has buckets they say what lies where; they have to cover the table, in its order.
 * Without them (while a plan is made) all lies close together, in one bucket. */
int params_expand(const Plan *plan, int32_t stage, struct param_table *out, struct error *err);
void params_free(struct param_table *table);
/* The elements of a unit's parameters with this sum, padding between them included; false: it has
 * none. */
bool params_unit_run(const struct param_table *table, int32_t unit, enum param_sum sum,
                     int64_t *begin, int64_t *end);
/* Is its gradient what one product of each backward pass makes, before anything else adds to it? A
 * tied embedding's is: the head's. Such a one can be written over whatever lies there; all others
 * are added to zeros. */
bool params_is_product(const struct param *p);
/* A walk over the elements at <= i < end that lie in no such gradient, padding included, in runs:
 * {.table = t, .at = begin, .end = end} is at the start. */
struct params_sums {
    const struct param_table *table;
    int64_t at, end;
    int32_t next; /* parameter */
};
bool params_next_sums(struct params_sums *walk, int64_t *begin, int64_t *numel);
/* -1: no such name. */
int32_t params_find(const struct param_table *table, const char *name);

#endif
