#include "plan/place_layout.h"

static int32_t at_least_one(int32_t size)
{
    return size < 1 ? 1 : size;
}

static int32_t common(int32_t a, int32_t b)
{
    while (b) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Makes blocks of `to` along an axis, where they were of `*size`. */
static void widen(struct place_layout *l, bool is_data, int32_t *size, int32_t to, bool is_tier)
{
    if (to <= *size) {
        return;
    }
    l->level[l->num_levels++] = (struct place_level){is_data, to / *size, *size};
    *size = to;
    if (is_tier) {
        int32_t columns = 1;
        for (int32_t i = 0; i < l->num_levels; i++) {
            columns *= l->level[i].size;
        }
        for (int32_t i = l->num_tiers; i > 0; i--) {
            l->tier[i] = l->tier[i - 1];
        }
        l->tier[0] = columns;
        l->num_tiers++;
    }
}

/* The order of the levels follows that of the rules: an expert group first, contexts, shards. */
static void make_levels(struct place_layout *l)
{
    int32_t c = 1, d = 1;
    l->tier[0] = 1;
    l->num_tiers = 1;
    if (l->expert < l->context) {
        widen(l, false, &c, l->expert, true);
    }
    widen(l, false, &c, l->context, true);
    int32_t of_data = l->expert > l->context ? l->expert / l->context : 1;
    int32_t both = l->shard / common(l->shard, of_data) * of_data;
    if (of_data % l->shard == 0) {
        widen(l, true, &d, l->shard, true);
    }
    widen(l, true, &d, of_data, true);
    widen(l, true, &d, both, true);
    widen(l, true, &d, l->data, false);
}

void place_layout_shards_first(struct place_layout *l)
{
    int32_t c = 1, d = 1;
    l->num_levels = 0;
    l->tier[0] = 1;
    l->num_tiers = 1;
    widen(l, true, &d, l->shard, true);
    widen(l, false, &c, l->context, false);
    widen(l, true, &d, l->data, false);
}

bool place_layout_init(struct place_layout *l, const struct place_request *r)
{
    *l = (struct place_layout){
        .data = at_least_one(r->data),
        .pipeline = at_least_one(r->pipeline),
        .context = at_least_one(r->context),
        .tensor = at_least_one(r->tensor),
        .expert = at_least_one(r->expert),
        .shard = at_least_one(r->shard),
    };
    const int32_t sizes[] = {l->data, l->pipeline, l->context, l->tensor};
    int64_t num = 1;
    for (int i = 0; i < 4; i++) {
        num *= sizes[i];
        if (num > FABRIC_MAX_DEVICES) {
            return false;
        }
    }
    l->num_ranks = (int32_t)num;
    l->num_columns = l->data * l->context;
    int32_t e = l->expert, c = l->context;
    bool carved = e <= c ? c % e == 0 : e % c == 0 && l->data % (e / c) == 0;
    l->expert = carved ? e : 1;
    l->shard = l->data % l->shard == 0 ? l->shard : 1;
    make_levels(l);
    return true;
}

void place_layout_column(const struct place_layout *l, int32_t column, int32_t *data,
                         int32_t *context)
{
    int32_t at[2] = {0, 0};
    for (int32_t i = 0; i < l->num_levels; i++) {
        at[l->level[i].is_data] += column % l->level[i].size * l->level[i].stride;
        column /= l->level[i].size;
    }
    *data = at[1];
    *context = at[0];
}

int32_t place_group(const struct place_request *r, Axis axis, int32_t rank, int32_t *ranks)
{
    struct place_layout l;
    ASSERT(place_layout_init(&l, r) && rank >= 0 && rank < l.num_ranks);
    int32_t tensor = rank % l.tensor;
    int32_t context = rank / l.tensor % l.context;
    int32_t stage = rank / (l.tensor * l.context) % l.pipeline;
    int32_t data = rank / (l.tensor * l.context * l.pipeline);
    int32_t size = axis == AXIS_DATA       ? l.data
                   : axis == AXIS_PIPELINE ? l.pipeline
                   : axis == AXIS_CONTEXT  ? l.context
                   : axis == AXIS_TENSOR   ? l.tensor
                                           : l.expert;
    int32_t first = (data * l.context + context) / l.expert * l.expert;
    for (int32_t i = 0; i < size; i++) {
        switch (axis) {
        case AXIS_DATA:
            data = i;
            break;
        case AXIS_PIPELINE:
            stage = i;
            break;
        case AXIS_CONTEXT:
            context = i;
            break;
        case AXIS_TENSOR:
            tensor = i;
            break;
        case AXIS_EXPERT:
        default:
            data = (first + i) / l.context;
            context = (first + i) % l.context;
            break;
        }
        ranks[i] = place_layout_rank(&l, data, stage, context) + tensor;
    }
    return size;
}
