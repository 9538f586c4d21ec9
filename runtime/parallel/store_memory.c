/* Where the buffers lie. What other ranks read in place, and only that, lies in this rank's area of
 * the shared segment: gradients that are summed, and slices of weights that are gathered. The rest
 * is device memory (huge pages on hosts).
 * plan/memory_shared.c says the same in bytes: memory_store_shared_bytes. */
#include "runtime/parallel/store_private.h"

static enum dtype type_of(const struct store *s, ArenaKind kind)
{
    return kind == ARENA_WEIGHTS || kind == ARENA_WEIGHT_SLOTS ? s->o.dtype : s->wide;
}

static int alloc_buffer(struct store *s, char **out, ArenaKind kind, int64_t numel, bool summed,
                        struct error *err)
{
    size_t bytes = (size_t)numel * dtype_size(type_of(s, kind));
    *out = arenas_take(s->o.arenas, kind, bytes, summed, err);
    return *out != NULL ? 0 : -1;
}

static int open_slots(struct store *s, struct store_slot *slots, ArenaKind kind,
                      const int64_t *numels, size_t num, bool summed, struct error *err)
{
    for (size_t i = 0; i < num; i++) {
        struct store_slot *slot = &slots[i];
        *slot = (struct store_slot){.numel = numels[i], .bucket = -1};
        if (numels[i] < 0 || numels[i] > s->o.table->flat_numel)
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "the plan's slot of %lld elements is out of "
                             "range",
                             (long long)numels[i]);
        if (alloc_buffer(s, &slot->mem, kind, numels[i], summed, err) != 0 ||
            s->o.dev->ops->event_new(s->o.dev, &slot->free, err) != 0)
            return -1;
    }
    return 0;
}

static int open_all_slots(struct store *s, struct error *err)
{
    const Stage *stage = s->o.stage;
    if (stage->n_weight_slots > STORE_MAX_SLOTS || stage->n_grad_slots > STORE_MAX_SLOTS)
        return error_set(err, ERR_INVALID_ARGUMENT, "the plan has more than %d slots",
                         STORE_MAX_SLOTS);
    if (s->zero_stage >= 3) {
        s->num_weight_slots = (int32_t)stage->n_weight_slots;
        if (open_slots(s, s->weight_slots, ARENA_WEIGHT_SLOTS, stage->weight_slots,
                       stage->n_weight_slots, false, err) != 0)
            return -1;
    }
    if (s->zero_stage >= 2) {
        s->num_grad_slots = (int32_t)stage->n_grad_slots;
        return open_slots(s, s->grad_slots, ARENA_GRAD_SLOTS, stage->grad_slots,
                          stage->n_grad_slots, true, err);
    }
    return 0;
}

int store_open_memory(struct store *s, struct error *err)
{
    int64_t whole = s->o.table->flat_numel, part = whole / s->num_shards;
    bool replicated = s->o.axes->num_replicas > 1;
    bool summed = s->zero_stage >= 2 ? replicated : replicated || s->num_shards > 1;
    if (alloc_buffer(s, &s->weights, ARENA_WEIGHTS, s->zero_stage < 3 ? whole : part,
                     s->zero_stage == 3, err) != 0 ||
        alloc_buffer(s, &s->grads, ARENA_GRADS, s->zero_stage < 2 ? whole : part, summed, err) != 0)
        return -1;
    int64_t own = s->zero_stage < 1 ? whole : part;
    if (s->wide != s->o.dtype && alloc_buffer(s, &s->masters, ARENA_MASTERS, own, false, err) != 0)
        return -1;
    if (s->o.moments && (alloc_buffer(s, &s->exp_avg, ARENA_EXP_AVG, own, false, err) != 0 ||
                         alloc_buffer(s, &s->exp_avg_sq, ARENA_EXP_AVG_SQ, own, false, err) != 0))
        return -1;
    return open_all_slots(s, err);
}

void store_close_memory(struct store *s)
{
    const struct device_ops *ops = s->o.dev->ops;
    for (int32_t i = 0; i < STORE_MAX_SLOTS; i++) {
        if (s->weight_slots[i].free != NULL)
            ops->event_free(s->o.dev, s->weight_slots[i].free);
        if (s->grad_slots[i].free != NULL)
            ops->event_free(s->o.dev, s->grad_slots[i].free);
    }
}
