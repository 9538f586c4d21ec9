/* The parameter table of one rank, expanded from a Plan: every parameter with its place in the
 * flat buffers (weights, gradients, optimizer state share one layout).
 *
 * Order = the order in which gradients become ready: unit L+1 first, embed last; a tied embedding
 * lies with unit 0. So a bucket is one contiguous range. Offsets are multiples of
 * PARAMS_ALIGN_NUMEL elements; padding is zero and stays zero. */
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
    ParamRole role;
    bool decay;
    bool tied;
    bool expert;          /* lies over the expert axis */
    bool on_rows, in_out; /* plans.proto: ParamDef */
    double init_std;
    bool init_ones;
    /* Cut over the tensor axis: which dimension, into how many parts that stay whole (of each
     * group; 0 = it may be cut anywhere), and of how many groups it consists. */
    bool tensor_shard;
    int32_t shard_dim;
    int64_t shard_parts, shard_groups;
};

struct param_table {
    struct param *params; /* owned; ready order */
    int32_t num_params;
    int64_t flat_numel; /* padding included */
};

/* The table of one pipeline stage's ranks. All of them have the same shapes; names of experts are
 * those of the first expert rank. Over the tensor axis a split dimension has ceil(rows / T) local
 * rows, the last ranks' padded ones zero and never stored; KV heads with fewer heads than ranks lie
 * on several. A tied embedding stands on the first stage and again on the last one. */
int params_expand(const Plan *plan, int32_t stage, struct param_table *out, struct error *err);
void params_free(struct param_table *table);
/* -1: no such name. */
int32_t params_find(const struct param_table *table, const char *name);

#endif
