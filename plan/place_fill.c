#include "plan/place_fill.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/place_pick.h"

/* A slot is one stage of one column: a tensor group. */
struct fill {
    const struct place_layout *l;
    const struct place_room *room; /* what was free at first */
    int32_t *devices;              /* out, by rank */
    bool *taken;                   /* by column * stages + stage */
    int32_t num_open;
    int32_t *chosen; /* devices of a round, portion by portion */
    struct place_portion *portions;
    int32_t num_portions;
};

/* Portions of a round that lie under one leaf: atoms first <= a < end of chosen. */
struct run {
    int32_t first, end;
};

/* ---- slots get devices ---- */

/* An atom goes to one stage of the columns of a block. */
static void put_atom(struct fill *f, int32_t columns, int32_t block, int32_t stage, int32_t atom)
{
    const struct place_layout *l = f->l;
    const int32_t *from = &f->chosen[(int64_t)atom * columns * l->tensor];
    for (int32_t i = 0; i < columns; i++, from += l->tensor) {
        int32_t column = block * columns + i, data, context;
        place_layout_column(l, column, &data, &context);
        int32_t rank = place_layout_rank(l, data, stage, context);
        memcpy(&f->devices[rank], from, (size_t)l->tensor * sizeof *from);
        f->taken[column * l->pipeline + stage] = true;
    }
    f->num_open -= columns;
}

static bool is_open(const struct fill *f, int32_t columns, int32_t block, int32_t stage)
{
    return !f->taken[block * columns * f->l->pipeline + stage];
}

static bool all_open(const struct fill *f, int32_t columns, int32_t block)
{
    for (int32_t s = 0; s < f->l->pipeline; s++) {
        if (!is_open(f, columns, block, s)) {
            return false;
        }
    }
    return true;
}

/* Whole chains under one leaf, stage by stage for blocks that belong together. Returns the block
 * to go on with. */
static int32_t put_chains(struct fill *f, int32_t columns, int32_t block, struct run *run)
{
    const struct place_layout *l = f->l;
    int32_t num_blocks = l->num_columns / columns, together = l->tier[0] / columns;
    while (run->end - run->first >= l->pipeline) {
        while (block < num_blocks && !all_open(f, columns, block)) {
            block++;
        }
        int32_t most = (run->end - run->first) / l->pipeline, end = block;
        int32_t stop = together > 0 ? (block / together + 1) * together : block + 1;
        while (end < num_blocks && end < stop && end - block < most && all_open(f, columns, end)) {
            end++;
        }
        if (end == block) {
            break;
        }
        for (int32_t s = 0; s < l->pipeline; s++) {
            for (int32_t b = block; b < end; b++) {
                put_atom(f, columns, b, s, run->first++);
            }
        }
        block = end;
    }
    return block;
}

static int longest(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    int32_t i = x->end - x->first, j = y->end - y->first;
    return i != j ? (i > j ? -1 : 1) : (x->first > y->first) - (x->first < y->first);
}

/* Of the runs that are left: one that just completes a chain, else the longest. Looks at some. */
static struct run *next_run(struct run *runs, int32_t num, int32_t missing)
{
    enum { LOOK_MAX = 128 };
    struct run *best = NULL;
    for (int32_t r = 0; r < num && r < LOOK_MAX; r++) {
        int32_t length = runs[r].end - runs[r].first;
        if (length == missing) {
            return &runs[r];
        }
        if (length > 0 && (!best || length > best->end - best->first)) {
            best = &runs[r];
        }
    }
    return best;
}

/* What makes up no whole chain goes to the open slots in order. */
static void put_rest(struct fill *f, int32_t columns, struct run *runs, int32_t num)
{
    const struct place_layout *l = f->l;
    int32_t slot = 0, num_slots = l->num_columns / columns * l->pipeline;
    qsort(runs, (size_t)num, sizeof *runs, longest);
    while (true) {
        while (num > 0 && runs->first == runs->end) {
            runs++;
            num--;
        }
        if (num == 0) {
            return;
        }
        while (slot < num_slots && !is_open(f, columns, slot / l->pipeline, slot % l->pipeline)) {
            slot++;
        }
        int32_t block = slot / l->pipeline, stage = slot % l->pipeline, end = stage;
        ASSERT(slot < num_slots);
        while (end < l->pipeline && is_open(f, columns, block, end)) {
            end++;
        }
        struct run *run = next_run(runs, num, end - stage);
        for (; stage < end && run->first < run->end; stage++) {
            put_atom(f, columns, block, stage, run->first++);
        }
    }
}

/* ---- a round: atoms of one size ---- */

static int32_t leaf_of(const struct place_room *room, int32_t cell, int32_t leaf)
{
    while (room->leaf_cell[leaf + 1] <= cell) {
        leaf++;
    }
    return leaf;
}

/* now: what is free before the round. */
static void put_portions(struct fill *f, const struct place_room *now, int32_t columns)
{
    int32_t atom_devices = columns * f->l->tensor;
    struct run *runs = calloc((size_t)f->num_portions + 1, sizeof *runs);
    ASSERT(runs);
    int32_t num_runs = 0, atom = 0, leaf = 0;
    for (int32_t i = 0; i < f->num_portions; i++) {
        const struct place_portion *p = &f->portions[i];
        int32_t used = f->room->free[p->cell] - now->free[p->cell];
        place_room_list(f->room, p->cell, used, p->atoms * atom_devices,
                        &f->chosen[(int64_t)atom * atom_devices]);
        int32_t at = leaf_of(now, p->cell, leaf);
        if (i == 0 || at != leaf) {
            runs[num_runs++].first = atom;
        }
        leaf = at;
        atom += p->atoms;
        runs[num_runs - 1].end = atom;
    }
    int32_t block = 0;
    for (int32_t r = 0; r < num_runs; r++) {
        block = put_chains(f, columns, block, &runs[r]);
    }
    put_rest(f, columns, runs, num_runs);
    free(runs);
}

static void take_all(struct fill *f, const struct place_room *now, int32_t atom_devices)
{
    f->num_portions = 0;
    for (int32_t c = 0; c < now->num_cells; c++) {
        if (now->free[c] >= atom_devices) {
            f->portions[f->num_portions++] = (struct place_portion){c, now->free[c] / atom_devices};
        }
    }
}

/* The room without the portions; its arrays are own. */
static void take_out(struct fill *f, struct place_room *now, int32_t atom_devices)
{
    size_t cells = (size_t)now->num_cells, leaves = (size_t)now->num_leaves;
    int32_t *own = calloc(cells + leaves + (size_t)now->max + 1, sizeof *own);
    ASSERT(own);
    int32_t *count = own, *leaf_free = own + cells, *with = leaf_free + leaves;
    memcpy(count, now->free, cells * sizeof *count);
    memcpy(leaf_free, now->leaf_free, leaves * sizeof *leaf_free);
    int32_t leaf = 0;
    for (int32_t i = 0; i < f->num_portions; i++) {
        const struct place_portion *p = &f->portions[i];
        leaf = leaf_of(now, p->cell, leaf);
        count[p->cell] -= p->atoms * atom_devices;
        leaf_free[leaf] -= p->atoms * atom_devices;
        now->total -= p->atoms * atom_devices;
    }
    for (size_t c = 0; c < cells; c++) {
        with[count[c]]++;
    }
    free(now->own);
    now->free = count;
    now->leaf_free = leaf_free;
    now->with = with;
    now->own = own;
}

/* Largest groups first. While there is no place for all of a size, all places for it are taken:
 * sizes nest, so that no more groups of any size can stay whole. */
static void fill_rounds(struct fill *f)
{
    const struct place_layout *l = f->l;
    struct place_room now = *f->room;
    now.own = NULL;
    for (int32_t t = 0; t < l->num_tiers && f->num_open > 0; t++) {
        int32_t columns = l->tier[t], atom_devices = columns * l->tensor;
        int32_t wanted = f->num_open / columns;
        int64_t places = place_room_groups(&now, atom_devices);
        if (places == 0) {
            continue;
        }
        if (places < wanted) {
            take_all(f, &now, atom_devices);
            put_portions(f, &now, columns);
            take_out(f, &now, atom_devices);
            continue;
        }
        int32_t stages = wanted % l->pipeline == 0 ? l->pipeline : 1;
        f->num_portions = place_pick(&now, atom_devices, wanted / stages, stages, f->portions);
        put_portions(f, &now, columns);
    }
    ASSERT(f->num_open == 0);
    free(now.own);
}

/* No domain has room for a context, nor for an expert group if there are any. */
static bool only_shards_hold(const struct place_room *room, const struct place_layout *l)
{
    return l->shard > 1 && l->context > 1 && place_room_groups(room, l->context * l->tensor) == 0 &&
           (l->expert == 1 || place_room_groups(room, l->expert * l->tensor) == 0);
}

void place_fill(const struct place_room *room, const struct place_layout *layout, int32_t *devices)
{
    struct place_layout shards = *layout;
    const struct place_layout *l = layout;
    if (only_shards_hold(room, layout)) {
        place_layout_shards_first(&shards);
        l = &shards;
    }
    int32_t num_slots = l->num_columns * l->pipeline;
    int32_t num_portions = num_slots < room->num_cells ? num_slots : room->num_cells;
    struct fill f = {.l = l, .room = room, .devices = devices, .num_open = num_slots};
    f.taken = calloc((size_t)num_slots, sizeof *f.taken);
    f.chosen = calloc((size_t)l->num_ranks, sizeof *f.chosen);
    f.portions = calloc((size_t)num_portions + 1, sizeof *f.portions);
    ASSERT(f.taken && f.chosen && f.portions);
    int32_t cell = place_pick_cell(room, l->num_ranks);
    if (cell >= 0) {
        f.portions[0] = (struct place_portion){cell, num_slots};
        f.num_portions = 1;
        put_portions(&f, room, 1);
    } else {
        fill_rounds(&f);
    }
    free(f.taken);
    free(f.chosen);
    free(f.portions);
}
