/* Whom do others wait for? Read from outside, while ranks go on: only what stays so says anything.
 *
 * Ranks wait in several calls at once, and most of those that are missing somewhere wait elsewhere
 * themselves. All ranks make their calls in one order (the action list). So of all calls that
 * somebody waits in, those who are missing in the first one are held up by nothing but themselves:
 * a call that they waited in, or that a stream of theirs waited in, would be an earlier one. */
#include <string.h>

#include "runtime/comm/comm_host_group.h"

/* A call that somebody waits in. */
struct pending {
    const struct segment_slot *slot;
    int32_t size;
    uint32_t next;   /* the generation that its members wait for */
    int32_t awaited; /* not in the barrier: the one member that another waits for; else -1 */
    bool is_board;
    struct segment_call call;
    char name[COMM_HOST_NAME_MAX];
    bool background;
};

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

static struct segment_call latest_call(const struct segment_member *m)
{
    uint64_t words[sizeof m->seen / sizeof *m->seen];
    struct segment_call call;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        words[i] = atomic_load_explicit(&m->seen[i], memory_order_relaxed);
    }
    memcpy(&call, words, sizeof call);
    return call;
}

static void fill_pending(struct pending *out, const struct segment_slot *slot, int32_t waiting)
{
    const struct segment_member *m = &slot->members[waiting];
    uint32_t named = atomic_load(&m->named);
    *out = (struct pending){.slot = slot, .awaited = -1, .call = latest_call(m)};
    out->background = named == SEGMENT_BACKGROUND;
    if (named != SEGMENT_NAMELESS) {
        memcpy(out->name, m->name, sizeof out->name);
        out->name[sizeof out->name - 1] = 0;
    }
}

static bool is_before(const struct pending *a, const struct pending *b)
{
    return a->background != b->background ? b->background : a->call.turn < b->call.turn;
}

/* The member that member i waits for, a message from it or its taking one; -1 = none. */
static int32_t waits_for(const struct segment_slot *slot, int32_t i)
{
    const struct segment_member *m = &slot->members[i];
    bool idle = atomic_load(&m->bell) == atomic_load(&m->heard);
    return idle ? atomic_load(&m->waits_for_plus_1) - 1 : -1;
}

/* Does one wait for another's message, or for its taking one, who waits for no third one? */
static bool message_in_slot(const struct segment_header *h, const struct segment_slot *slot,
                            int32_t rank, struct pending *out)
{
    int32_t size = atomic_load(&slot->size);
    bool found = false;
    size = size < h->num_ranks ? size : h->num_ranks;
    for (int32_t i = 0; i < size; i++) {
        int32_t awaited = waits_for(slot, i);
        if (awaited < 0 || awaited >= size || waits_for(slot, awaited) >= 0 ||
            (rank >= 0 && world_rank(h, slot, awaited) != rank)) {
            continue;
        }
        struct pending here;
        fill_pending(&here, slot, i);
        here.awaited = awaited;
        here.size = size;
        if (!found || is_before(&here, out)) {
            *out = here;
            found = true;
        }
    }
    return found;
}

/* On a board: is member i one that somebody in this call waits for? */
static bool lacks(const struct segment_slot *slot, const struct segment_call *call, int32_t i)
{
    const struct segment_member *m = &slot->members[i];
    if (call->kind != CALL_SEND && call->kind != CALL_RECV && call->kind != CALL_EXCHANGE) {
        return atomic_load(&m->came) < call->number;
    }
    uint64_t peers = (uint64_t)call->offset;
    bool takes_part = peers == 0 || (i < 64 && (peers >> i & 1));
    return takes_part && !atomic_load(&m->is_inside);
}

static bool board_in_slot(const struct segment_header *h, const struct segment_slot *slot,
                          int32_t rank, struct pending *out)
{
    int32_t size = atomic_load(&slot->size);
    bool found = false;
    size = size < h->num_ranks ? size : h->num_ranks;
    for (int32_t i = 0; i < size; i++) {
        if (!atomic_load(&slot->members[i].is_inside)) {
            continue;
        }
        struct pending here;
        bool missing = false;
        fill_pending(&here, slot, i);
        here.size = size;
        here.is_board = true;
        for (int32_t k = 0; k < size && !missing; k++) {
            missing = lacks(slot, &here.call, k) && (rank < 0 || world_rank(h, slot, k) == rank);
        }
        if (missing && (!found || is_before(&here, out))) {
            *out = here;
            found = true;
        }
    }
    return found;
}

/* Is somebody waiting in this slot's barrier, and this rank (-1: anyone) missing? */
static bool barrier_in_slot(const struct segment_header *h, const struct segment_slot *slot,
                            int32_t rank, struct pending *out)
{
    int32_t size = atomic_load(&slot->size), waiting = -1;
    uint32_t next = (atomic_load(&slot->generation) & ~1u) + 2;
    bool missing = false;
    size = size < h->num_ranks ? size : h->num_ranks;
    for (int32_t i = 0; i < size; i++) {
        if (is_waiting(slot, i, next)) {
            waiting = i;
        } else if (rank < 0 || world_rank(h, slot, i) == rank) {
            missing = true;
        }
    }
    if (waiting < 0 || !missing) {
        return false;
    }
    fill_pending(out, slot, waiting);
    out->size = size;
    out->next = next;
    return true;
}

static bool pending_in_slot(const struct segment_header *h, const struct segment_slot *slot,
                            int32_t rank, struct pending *out)
{
    struct pending message;
    if (atomic_load(&slot->is_board)) {
        return board_in_slot(h, slot, rank, out);
    }
    bool in_barrier = barrier_in_slot(h, slot, rank, out);
    if (message_in_slot(h, slot, rank, &message) && (!in_barrier || is_before(&message, out))) {
        *out = message;
        return true;
    }
    return in_barrier;
}

/* Is member i one of those that are waited for? */
static bool is_missing(const struct pending *p, int32_t i)
{
    if (p->is_board) {
        return lacks(p->slot, &p->call, i);
    }
    return p->awaited >= 0 ? i == p->awaited : !is_waiting(p->slot, i, p->next);
}

static bool first_pending(struct segment_header *h, int32_t rank, struct pending *out)
{
    const _Atomic uint64_t *keys = segment_keys(h);
    struct pending here;
    bool found = false;
    for (uint32_t s = 0; s < h->num_slots; s++) {
        if (atomic_load(&keys[s]) && pending_in_slot(h, segment_slot_at(h, s), rank, &here) &&
            (!found || is_before(&here, out))) {
            *out = here;
            found = true;
        }
    }
    return found;
}

static void describe(const struct pending *p, int32_t rank, struct comm_host_missing *out)
{
    out->rank = rank;
    out->call_number = p->call.number;
    host_call_text(&p->call, p->name, out->call);
}

int host_first_missing(struct segment_header *h, int32_t *ranks, struct comm_host_missing *call)
{
    struct pending p;
    int num = 0;
    if (!first_pending(h, -1, &p)) {
        return -1;
    }
    for (int32_t i = 0; i < p.size; i++) {
        int32_t rank = world_rank(h, p.slot, i);
        if (rank >= 0 && is_missing(&p, i)) {
            ranks[num++] = rank;
        }
    }
    describe(&p, num ? ranks[0] : -1, call);
    return num;
}

int comm_host_segment_missing(void *segment, struct comm_host_missing *out, int max)
{
    int32_t ranks[COMM_HOST_MAX_RANKS];
    struct comm_host_missing call;
    int num = host_first_missing(segment, ranks, &call);
    num = num < max ? num : max;
    for (int i = 0; i < num; i++) {
        out[i] = call;
        out[i].rank = ranks[i];
    }
    return num < 0 ? 0 : num;
}

bool comm_host_segment_waits_for(void *segment, int32_t rank, struct comm_host_missing *out)
{
    struct pending p;
    if (!first_pending(segment, rank, &p)) {
        return false;
    }
    describe(&p, rank, out);
    return true;
}
