/* Apart from crew.c: here stands the other gang, whose ranks are threads. */
#include <stdio.h>

#include "tests/fault/crew.h"
#include "tests/parallel/gang.h"

Plan *crew_plan(const struct crew_layout *layout, int64_t steps, int64_t interval)
{
    char checkpoint[96];
    snprintf(checkpoint, sizeof(checkpoint), "interval: %lld, export_at_end: false, async: true",
             (long long)interval);
    struct gang_spec spec = {
        .golden = layout->gpt2 ? &golden_gpt2 : &golden_tiny,
        .data = layout->data,
        .tensor = layout->tensor,
        .zero_stage = layout->zero_stage,
        .shard_size = layout->shard_size,
        .sequence_parallel = layout->sequence,
        .micro = layout->micro,
        .batch = 12,
        .steps = steps,
        .checkpoint = checkpoint,
    };
    return gang_plan(&spec);
}

const char *crew_layout_name(const struct crew_layout *l, char out[96])
{
    char zero[32] = "", shards[32] = "";
    if (l->zero_stage > 0)
        snprintf(zero, sizeof(zero), ", ZeRO-%d", l->zero_stage);
    if (l->shard_size > 0)
        snprintf(shards, sizeof(shards), " in blocks of %d", l->shard_size);
    snprintf(out, 96, "%sdata %d, tensor %d%s%s%s", l->gpt2 ? "gpt2, " : "", l->data, l->tensor,
             l->sequence ? " + sequence" : "", zero, shards);
    return out;
}
