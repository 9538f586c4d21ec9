/* A layout in a few words. */
#include "plan/layout_rules.h"

static void add_axis(struct buf *out, const char *name, int64_t size)
{
    if (size > 1) {
        buf_printf(out, "%s%s %lld", out->len ? ", " : "", name, (long long)size);
    }
}

static void add_zero(struct buf *out, const ParallelSpec *l)
{
    if (l->zero_stage == 0) {
        return;
    }
    buf_printf(out, "%sZeRO-%lld", out->len ? ", " : "", (long long)l->zero_stage);
    if (l->shard_size > 0 && l->shard_size < l->data) {
        buf_printf(out, " over %lld data rank%s", (long long)l->shard_size,
                   l->shard_size == 1 ? "" : "s");
    }
}

void layout_words(struct buf *out, const ParallelSpec *l)
{
    add_axis(out, "data", l->data);
    add_axis(out, "pipeline", l->pipeline);
    add_axis(out, "context", l->context);
    add_axis(out, "tensor", l->tensor);
    if (l->tensor > 1 && l->sequence_parallel) {
        buf_puts(out, " with sequence parallel");
    }
    add_axis(out, "expert", l->expert);
    if (out->len > 0) {
        add_zero(out, l);
    }
    if (l->pipeline > 1) {
        buf_printf(out, ", %s", l->schedule);
    }
}
