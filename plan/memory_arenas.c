/* The pieces of memory that a rank sets aside, as the plan's data. */
#include <stdlib.h>

#include "plan/layout_rules.h"
#include "plan/memory_parts.h"

#define NUM_KINDS 16

struct piece {
    ArenaKind kind;
    double bytes;
    bool shared;
};

/* What other ranks read in place lies in the segment (runtime/parallel/store_memory.c); GPUs read
 * nothing in place. */
static void find_pieces(struct piece pieces[NUM_KINDS], const struct memory_parts *p,
                        const ParallelSpec *l, const struct memory_load *load)
{
    bool many = load->num_ranks > 1;
    int64_t shards = layout_shards(l), zero_stage = shards == 1 ? 0 : l->zero_stage;
    bool replicated = l->data > shards;
    const struct piece list[NUM_KINDS] = {
        {ARENA_WEIGHTS, p->weights, zero_stage == 3},
        {ARENA_GRADS, p->grads, zero_stage >= 2 ? replicated : l->data > 1},
        {ARENA_EXP_AVG, p->exp_avg, false},
        {ARENA_EXP_AVG_SQ, p->exp_avg_sq, false},
        {ARENA_MASTERS, p->masters, false},
        {ARENA_WEIGHT_SLOTS, p->weight_slots, false},
        {ARENA_GRAD_SLOTS, p->grad_slots, true},
        {ARENA_ACTIVATIONS, p->activations, false},
        {ARENA_BACKWARD, p->backward, false},
        {ARENA_LOGITS, p->logits, false},
        {ARENA_SUMMED, p->summed, true},
        {ARENA_WORDS, p->words, many},
        {ARENA_WORKSPACE, p->workspace, false},
        {ARENA_BATCH, p->batch, false},
        {ARENA_HOST, p->host, false},
        {ARENA_SNAPSHOT, p->snapshot, false},
    };
    for (size_t i = 0; i < NUM_KINDS; i++) {
        pieces[i] = list[i];
        pieces[i].shared = list[i].shared && !load->gpu;
    }
}

void memory_add_arenas(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                       const struct memory_load *load)
{
    struct memory_parts parts;
    struct piece pieces[NUM_KINDS];
    memory_parts_of(&parts, config, spec, load);
    find_pieces(pieces, &parts, spec->parallel->layout, load);
    out->arenas = calloc(NUM_KINDS, sizeof *out->arenas);
    ASSERT(out->arenas);
    for (size_t i = 0; i < NUM_KINDS; i++) {
        double bytes = memory_piece(pieces[i].bytes, 1);
        if (bytes <= 0) {
            continue;
        }
        Arena *arena = malloc(sizeof *arena);
        ASSERT(arena);
        arena__init(arena);
        arena->has_kind = arena->has_bytes = arena->has_shared = 1;
        arena->kind = pieces[i].kind;
        arena->bytes = bytes < (double)MEMORY_MAX_BYTES ? (int64_t)bytes : MEMORY_MAX_BYTES;
        arena->shared = pieces[i].shared;
        out->arenas[out->n_arenas++] = arena;
    }
}
