/* What a GPU holds beside what a rank sets aside: the driver's context, libraries, communicators.
 */
#include "plan/layout_rules.h"
#include "plan/memory_parts.h"

/* As runtime/parallel/axes.c makes them; of axes that can't be run yet one each. */
int32_t memory_num_communicators(const ModelConfig *config, const ParallelSpec *l)
{
    int64_t heads = config->num_key_value_heads, shards = layout_shards(l);
    int64_t ranks = l->data * l->pipeline * l->context * l->tensor;
    int32_t num = 0;
    num += l->tensor > 1;
    num += heads > 0 && l->tensor > heads; /* copies of a KV head */
    num += shards > 1 ? 2 : 0;             /* shard and gather, of the same ranks */
    num += l->data > shards;               /* replicas */
    num += ranks > 1;                      /* all ranks */
    num += l->pipeline > 1;
    num += l->context > 1;
    num += l->expert > 1;
    return num;
}

int64_t memory_gpu_fixed_bytes(const ModelConfig *config, const ParallelSpec *l)
{
    int32_t num = memory_num_communicators(config, l);
    return MEMORY_GPU_CONTEXT_BYTES + (num > 0 ? MEMORY_NCCL_ROOT_BYTES : 0) +
           num * MEMORY_NCCL_BYTES;
}
