/* Whom do others wait for? Read from outside, while ranks go on: only what stays so says anything.
 */
#include <string.h>

#include "runtime/comm/comm_host_group.h"

/* Member i of a slot is in its barrier: it came, and the others have not opened the next. */
static bool is_waiting(const struct segment_slot *slot, int32_t i, uint32_t next)
{
    return atomic_load(&slot->members[i].reached) == next;
}

static int32_t world_rank(const struct segment_header *h, const struct segment_slot *slot,
                          int32_t i)
{
    int32_t rank = atomic_load(&slot->members[i].world_rank_plus_1) - 1;
    return rank < h->num_ranks ? rank : -1;
}

/* What the member that waits has called: the later of its two lines. */
static struct segment_call latest_call(const struct segment_slot *slot, int32_t i)
{
    const struct segment_call *calls = slot->members[i].calls;
    return calls[(int32_t)(calls[1].number - calls[0].number) > 0];
}

static int32_t slot_size(const struct segment_header *h, const struct segment_slot *slot)
{
    int32_t size = atomic_load(&slot->size);
    return size < h->num_ranks ? size : h->num_ranks;
}

static uint32_t slot_next(const struct segment_slot *slot)
{
    return (atomic_load(&slot->generation) & ~1u) + 2;
}

static int missing_in_slot(const struct segment_header *h, const struct segment_slot *slot,
                           const bool *waits, struct comm_host_missing *out, int max)
{
    int32_t size = slot_size(h, slot), waiting = -1;
    uint32_t next = slot_next(slot);
    int num = 0;
    for (int32_t i = 0; i < size && waiting < 0; i++) {
        waiting = is_waiting(slot, i, next) ? i : -1;
    }
    for (int32_t i = 0; i < size && waiting >= 0 && num < max; i++) {
        int32_t rank = world_rank(h, slot, i);
        if (rank < 0 || waits[rank] || is_waiting(slot, i, next)) {
            continue;
        }
        struct segment_call call = latest_call(slot, waiting);
        out[num].rank = rank;
        out[num].call_number = call.number;
        host_call_text(&call, out[num].call);
        num++;
    }
    return num;
}

int comm_host_segment_missing(void *segment, struct comm_host_missing *out, int max)
{
    struct segment_header *h = segment;
    const _Atomic uint64_t *keys = segment_keys(h);
    bool waits[COMM_HOST_MAX_RANKS] = {false};
    int num = 0;
    for (uint32_t s = 0; s < h->num_slots; s++) {
        const struct segment_slot *slot = segment_slot_at(h, s);
        for (int32_t i = 0; atomic_load(&keys[s]) && i < slot_size(h, slot); i++) {
            int32_t rank = world_rank(h, slot, i);
            if (rank >= 0 && is_waiting(slot, i, slot_next(slot))) {
                waits[rank] = true;
            }
        }
    }
    for (uint32_t s = 0; s < h->num_slots && num < max; s++) {
        if (atomic_load(&keys[s])) {
            num += missing_in_slot(h, segment_slot_at(h, s), waits, out + num, max - num);
        }
    }
    return num;
}
