#include "plan/place_pick.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Cells of a leaf that have the same number of devices free: they are alike. */
struct kind {
    int32_t free, atoms;
    int32_t have, chosen;
};

struct pick {
    const struct place_room *room;
    int32_t atom, stages;
    struct kind *kinds; /* atoms descending, free ascending among equals */
    int32_t num_kinds;
    int32_t *tally; /* by free devices; zero between uses */
    int32_t *atoms_of_leaf;
    struct place_portion *out;
    int32_t num_out;
};

int32_t place_pick_cell(const struct place_room *room, int32_t devices)
{
    int32_t num = devices;
    while (num <= room->max && room->with[num] == 0) {
        num++;
    }
    if (num > room->max) {
        return -1;
    }
    int32_t best = -1, left = INT32_MAX, seen = 0;
    for (int32_t l = 0; l < room->num_leaves && seen < room->with[num]; l++) {
        if (room->leaf_free[l] < num) {
            continue;
        }
        for (int32_t c = room->leaf_cell[l]; c < room->leaf_cell[l + 1]; c++) {
            if (room->free[c] != num) {
                continue;
            }
            seen++;
            if (room->leaf_free[l] < left) {
                best = c;
                left = room->leaf_free[l];
            }
        }
    }
    return best;
}

/* ---- cells under one leaf ---- */

/* Sorts cells first <= c < end into kinds; returns their atoms. */
static int64_t sort_kinds(struct pick *p, int32_t first, int32_t end)
{
    int32_t max = 0;
    int64_t sum = 0;
    p->num_kinds = 0;
    for (int32_t c = first; c < end; c++) {
        int32_t n = p->room->free[c];
        if (n >= p->atom) {
            p->tally[n]++;
            max = n > max ? n : max;
        }
    }
    for (int32_t atoms = max / p->atom; atoms > 0; atoms--) {
        for (int32_t n = atoms * p->atom; n < (atoms + 1) * p->atom && n <= max; n++) {
            if (p->tally[n] > 0) {
                p->kinds[p->num_kinds++] = (struct kind){n, atoms, p->tally[n], 0};
                sum += (int64_t)atoms * p->tally[n];
                p->tally[n] = 0;
            }
        }
    }
    return sum;
}

struct cost {
    int32_t cells;
    int64_t free;
};

/* Chooses kinds for `atoms` of them (there are as many): the fewest cells; among these, as a rule,
 * those with the least free. */
static struct cost choose_kinds(struct pick *p, int64_t atoms)
{
    int64_t rest = atoms;
    int32_t last = 0;
    for (int32_t i = 0; i < p->num_kinds && rest > 0; i++) {
        struct kind *k = &p->kinds[i];
        int64_t num = (rest + k->atoms - 1) / k->atoms;
        k->chosen = num < k->have ? (int32_t)num : k->have;
        rest -= (int64_t)k->chosen * k->atoms;
        last = i;
    }
    ASSERT(rest <= 0);
    /* What was taken too much is given back by smaller cells in place of larger ones. */
    for (int32_t i = last; i >= 0; i--) {
        struct kind *k = &p->kinds[i];
        for (int32_t j = p->num_kinds - 1; j > i && k->chosen > 0;) {
            struct kind *small = &p->kinds[j];
            /* Groups of equal atoms ascend in free: begin with the least of a group. */
            int32_t g = j;
            while (g > i + 1 && p->kinds[g - 1].atoms == small->atoms) {
                g--;
            }
            bool moved = false;
            for (int32_t m = g; m <= j && k->chosen > 0; m++) {
                struct kind *to = &p->kinds[m];
                while (k->chosen > 0 && to->chosen < to->have && to->free < k->free &&
                       k->atoms - to->atoms <= -rest) {
                    k->chosen--;
                    to->chosen++;
                    rest += k->atoms - to->atoms;
                    moved = true;
                }
            }
            (void)moved;
            j = g - 1;
        }
    }
    struct cost cost = {0};
    for (int32_t i = 0; i < p->num_kinds; i++) {
        cost.cells += p->kinds[i].chosen;
        cost.free += (int64_t)p->kinds[i].chosen * p->kinds[i].free;
    }
    return cost;
}

/* Puts the chosen kinds' first cells out, `atoms` in all. */
static void take_chosen(struct pick *p, int32_t first, int32_t end, int64_t atoms)
{
    for (int32_t i = 0; i < p->num_kinds; i++) {
        p->tally[p->kinds[i].free] = p->kinds[i].chosen;
    }
    for (int32_t c = first; c < end && atoms > 0; c++) {
        int32_t n = p->room->free[c];
        if (n >= p->atom && p->tally[n] > 0) {
            int32_t here = n / p->atom;
            p->tally[n]--;
            here = here < atoms ? here : (int32_t)atoms;
            p->out[p->num_out++] = (struct place_portion){c, here};
            atoms -= here;
        }
    }
    for (int32_t i = 0; i < p->num_kinds; i++) {
        p->tally[p->kinds[i].free] = 0;
    }
    ASSERT(atoms == 0);
}

static void take_in(struct pick *p, int32_t first, int32_t end, int64_t atoms)
{
    if (atoms > 0) {
        sort_kinds(p, first, end);
        choose_kinds(p, atoms);
        take_chosen(p, first, end, atoms);
    }
}

/* Of the leaves that have so many atoms, the one where they cost least; not those marked. */
static int32_t best_leaf(struct pick *p, int64_t atoms, const bool *marked)
{
    const struct place_room *room = p->room;
    int32_t best = -1;
    struct cost least = {0};
    for (int32_t l = 0; l < room->num_leaves; l++) {
        if ((int64_t)room->leaf_free[l] < atoms * p->atom || (marked && marked[l]) ||
            sort_kinds(p, room->leaf_cell[l], room->leaf_cell[l + 1]) < atoms) {
            continue;
        }
        struct cost cost = choose_kinds(p, atoms);
        if (best < 0 || cost.cells < least.cells ||
            (cost.cells == least.cells &&
             (cost.free < least.free ||
              (cost.free == least.free && room->leaf_free[l] < room->leaf_free[best])))) {
            best = l;
            least = cost;
        }
    }
    return best;
}

/* ---- several leaves ---- */

struct leaf {
    int32_t leaf, atoms, chains, free;
    int32_t taken; /* atoms */
};

static int most_chains(const void *a, const void *b)
{
    const struct leaf *x = a, *y = b;
    if (x->chains != y->chains) {
        return x->chains > y->chains ? -1 : 1;
    }
    if (x->free != y->free) {
        return x->free < y->free ? -1 : 1;
    }
    return (x->leaf > y->leaf) - (x->leaf < y->leaf);
}

static int most_left_over(const void *a, const void *b)
{
    const struct leaf *x = a, *y = b;
    int32_t i = x->atoms - x->taken, j = y->atoms - y->taken;
    return i != j ? (i > j ? -1 : 1) : most_chains(a, b);
}

static int by_place(const void *a, const void *b)
{
    const struct leaf *x = a, *y = b;
    return (x->leaf > y->leaf) - (x->leaf < y->leaf);
}

/* Whole chains fit: the fewest leaves. The last one is the best fit for what the others leave. */
static void spread_whole(struct pick *p, struct leaf *leaves, int32_t num, int64_t chains)
{
    bool *marked = calloc((size_t)p->room->num_leaves, sizeof *marked);
    ASSERT(marked);
    int32_t i = 0;
    for (; i < num && leaves[i].chains < chains; i++) {
        leaves[i].taken = leaves[i].chains * p->stages;
        marked[leaves[i].leaf] = true;
        chains -= leaves[i].chains;
    }
    ASSERT(i < num);
    int32_t last = best_leaf(p, chains * p->stages, marked);
    free(marked);
    for (; i < num; i++) {
        if (leaves[i].leaf == last) {
            leaves[i].taken = (int32_t)chains * p->stages;
        }
    }
}

/* They don't: as many whole ones as there can be, then pieces, the largest first. */
static void spread_pieces(struct pick *p, struct leaf *leaves, int32_t num, int64_t chains)
{
    int64_t rest = chains * p->stages;
    for (int32_t i = 0; i < num; i++) {
        leaves[i].taken = leaves[i].chains * p->stages;
        rest -= leaves[i].taken;
    }
    qsort(leaves, (size_t)num, sizeof *leaves, most_left_over);
    for (int32_t i = 0; i < num && rest > 0; i++) {
        int32_t more = leaves[i].atoms - leaves[i].taken;
        more = more < rest ? more : (int32_t)rest;
        leaves[i].taken += more;
        rest -= more;
    }
    ASSERT(rest == 0);
}

static void pick_leaves(struct pick *p, int64_t chains)
{
    const struct place_room *room = p->room;
    struct leaf *leaves = calloc((size_t)room->num_leaves, sizeof *leaves);
    ASSERT(leaves);
    int32_t num = 0;
    int64_t whole = 0;
    for (int32_t l = 0; l < room->num_leaves; l++) {
        if (room->leaf_free[l] < p->atom) {
            continue;
        }
        int64_t atoms = 0;
        for (int32_t c = room->leaf_cell[l]; c < room->leaf_cell[l + 1]; c++) {
            atoms += room->free[c] / p->atom;
        }
        if (atoms > 0) {
            leaves[num++] = (struct leaf){l, (int32_t)atoms, (int32_t)(atoms / p->stages),
                                          room->leaf_free[l], 0};
            whole += atoms / p->stages;
        }
    }
    qsort(leaves, (size_t)num, sizeof *leaves, most_chains);
    if (whole >= chains) {
        spread_whole(p, leaves, num, chains);
    } else {
        spread_pieces(p, leaves, num, chains);
    }
    qsort(leaves, (size_t)num, sizeof *leaves, by_place);
    for (int32_t i = 0; i < num; i++) {
        int32_t l = leaves[i].leaf;
        take_in(p, room->leaf_cell[l], room->leaf_cell[l + 1], leaves[i].taken);
    }
    free(leaves);
}

int32_t place_pick(const struct place_room *room, int32_t atom_devices, int32_t chains,
                   int32_t stages, struct place_portion *out)
{
    int64_t atoms = (int64_t)chains * stages;
    struct pick p = {.room = room, .atom = atom_devices, .stages = stages, .out = out};
    int32_t num_kinds = room->num_cells < room->max + 1 ? room->num_cells : room->max + 1;
    p.kinds = calloc((size_t)num_kinds + 1, sizeof *p.kinds);
    p.tally = calloc((size_t)room->max + 2, sizeof *p.tally);
    ASSERT(p.kinds && p.tally);
    if (room->num_leaves == room->num_cells &&
        place_room_groups(room, atom_devices * stages) >= chains) {
        /* Each cell its own leaf: chains take the place of atoms. */
        p.atom *= stages;
        take_in(&p, 0, room->num_cells, chains);
        for (int32_t i = 0; i < p.num_out; i++) {
            out[i].atoms *= stages;
        }
    } else {
        int32_t leaf = best_leaf(&p, atoms, NULL);
        if (leaf >= 0) {
            take_in(&p, room->leaf_cell[leaf], room->leaf_cell[leaf + 1], atoms);
        } else {
            pick_leaves(&p, chains);
        }
    }
    free(p.kinds);
    free(p.tally);
    return p.num_out;
}
