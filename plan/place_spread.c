#include "plan/place_spread.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

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
static void spread_whole(struct place_picking *p, struct leaf *leaves, int32_t num, int64_t chains)
{
    int32_t i = 0, last = -1;
    for (; i < num && leaves[i].chains < chains; i++) {
        leaves[i].taken = leaves[i].chains * p->stages;
        chains -= leaves[i].chains;
    }
    place_cost least = 0;
    for (; i < num && leaves[i].chains >= chains; i++) {
        place_cost cost = place_pick_cost(p, leaves[i].leaf, chains * p->stages);
        if (last < 0 || cost < least || (cost == least && leaves[i].free < leaves[last].free)) {
            last = i;
            least = cost;
        }
    }
    ASSERT(last >= 0);
    leaves[last].taken = (int32_t)chains * p->stages;
}

/* They don't: as many whole ones as there can be, then pieces, the largest first. */
static void spread_pieces(struct place_picking *p, struct leaf *leaves, int32_t num, int64_t chains)
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

/* ---- several leaves, exactly ---- */

/* Work of it: leaves x atoms x atoms. */
#define EXACT_MAX (1 << 16)
/* Parts of a sum, the more important ones further up: chains cut, leaves, then as place_cost. */
#define SUM_CUT ((int64_t)1 << 56)
#define SUM_LEAF ((int64_t)1 << 48)
#define SUM_NONE INT64_MAX

/* What leaf's first `atoms` cost; SUM_NONE: it mayn't be so many. Where chains have to be cut, all
 * whole ones are taken, and each leaf that gives a piece is one more cut. */
static int64_t leaf_sum(const struct place_picking *p, const struct leaf *leaf, int32_t atoms,
                        bool cut, const place_cost *costs)
{
    int32_t piece = cut ? atoms - leaf->chains * p->stages : atoms % p->stages;
    if (atoms > leaf->atoms || piece < 0 || (!cut && piece > 0)) {
        return SUM_NONE;
    }
    return atoms == 0 ? 0 : costs[atoms] + SUM_LEAF + (piece > 0 ? SUM_CUT : 0);
}

/* Every way to share `atoms` among the leaves: Bellman, leaf by leaf. False: too much work. */
static bool spread_exactly(struct place_picking *p, struct leaf *leaves, int32_t num, int32_t atoms,
                           bool cut)
{
    if (num > 127 || atoms > 127 || num * (atoms + 1) * (atoms + 1) > EXACT_MAX) {
        return false;
    }
    size_t width = (size_t)atoms + 1;
    int64_t *best = calloc(width * 2, sizeof *best), *next = best + width;
    place_cost *costs = calloc(width, sizeof *costs);
    uint8_t *share = calloc(width * (size_t)num, sizeof *share);
    ASSERT(best && costs && share);
    bool done = true;
    for (int32_t a = 1; a <= atoms; a++) {
        best[a] = SUM_NONE;
    }
    for (int32_t i = 0; i < num && done; i++) {
        const int32_t *first = &p->room->leaf_cell[leaves[i].leaf];
        int32_t most = leaves[i].atoms < atoms ? leaves[i].atoms : atoms;
        place_kinds_sort(&p->kinds, first[0], first[1]);
        done = place_kinds_costs(&p->kinds, most, costs);
        for (int32_t a = 0; a <= atoms; a++) {
            next[a] = SUM_NONE;
            for (int32_t here = 0; here <= most && here <= a; here++) {
                int64_t sum = best[a - here] == SUM_NONE
                                  ? SUM_NONE
                                  : leaf_sum(p, &leaves[i], here, cut, costs);
                if (sum < SUM_NONE && sum + best[a - here] < next[a]) {
                    next[a] = sum + best[a - here];
                    share[(size_t)i * width + (size_t)a] = (uint8_t)here;
                }
            }
        }
        memcpy(best, next, width * sizeof *best);
    }
    done = done && best[atoms] < SUM_NONE;
    for (int32_t i = num - 1, a = atoms; i >= 0 && done; i--) {
        leaves[i].taken = share[(size_t)i * width + (size_t)a];
        a -= leaves[i].taken;
    }
    free(best);
    free(costs);
    free(share);
    return done;
}

static int32_t list_leaves(const struct place_picking *p, struct leaf *leaves, int64_t *whole)
{
    const struct place_room *room = p->room;
    int32_t num = 0, atom = p->kinds.atom;
    *whole = 0;
    for (int32_t l = 0; l < room->num_leaves; l++) {
        if (room->leaf_free[l] < atom) {
            continue;
        }
        int64_t atoms = 0;
        for (int32_t c = room->leaf_cell[l]; c < room->leaf_cell[l + 1]; c++) {
            atoms += room->free[c] / atom;
        }
        if (atoms > 0) {
            leaves[num++] = (struct leaf){l, (int32_t)atoms, (int32_t)(atoms / p->stages),
                                          room->leaf_free[l], 0};
            *whole += atoms / p->stages;
        }
    }
    return num;
}

/* Sets taken of each leaf; leaves are in the order of the tree before and after. */
static void spread(struct place_picking *p, struct leaf *leaves, int32_t num, int64_t chains,
                   bool cut)
{
    int64_t atoms = chains * p->stages;
    for (int32_t i = 0; i < num; i++) {
        leaves[i].taken = 0;
    }
    if (atoms <= INT32_MAX && spread_exactly(p, leaves, num, (int32_t)atoms, cut)) {
        return;
    }
    qsort(leaves, (size_t)num, sizeof *leaves, most_chains);
    if (cut) {
        spread_pieces(p, leaves, num, chains);
    } else {
        spread_whole(p, leaves, num, chains);
    }
    qsort(leaves, (size_t)num, sizeof *leaves, by_place);
}

/* ---- below one switch ---- */

/* Of a switch of the level; -1 = the leaf is under none. */
static int32_t switch_over(const struct place_room *room, int32_t leaf, int32_t level)
{
    const struct fabric *f = free_map_fabric(room->map);
    int32_t s = room->leaf_key[leaf] >= 0 ? room->leaf_key[leaf] : -1;
    for (int32_t l = 0; l < level && s >= 0; l++) {
        s = f->switches[l][s].up;
    }
    return s;
}

/* Leaves, and what their domains cost. */
struct spread_cost {
    int64_t leaves;
    place_cost cells;
};

static struct spread_cost cost_of(struct place_picking *p, const struct leaf *leaves, int32_t num)
{
    struct spread_cost cost = {0};
    for (int32_t i = 0; i < num; i++) {
        if (leaves[i].taken > 0) {
            const int32_t *first = &p->room->leaf_cell[leaves[i].leaf];
            place_kinds_sort(&p->kinds, first[0], first[1]);
            cost.cells += place_kinds_choose(&p->kinds, leaves[i].taken);
            cost.leaves++;
        }
    }
    return cost;
}

/* Leaves first <= l < end below one switch. */
struct below {
    int32_t first, end, free;
};

static int fullest(const void *a, const void *b)
{
    const struct below *x = a, *y = b;
    return x->free != y->free ? (x->free < y->free ? -1 : 1)
                              : (x->first > y->first) - (x->first < y->first);
}

/* Switches of a level with room for all chains. */
static int32_t list_below(const struct place_picking *p, const struct leaf *leaves, int32_t num,
                          int64_t chains, int32_t level, struct below *list)
{
    int32_t count = 0, end;
    for (int32_t first = 0; first < num; first = end) {
        int32_t s = switch_over(p->room, leaves[first].leaf, level), free_below = 0;
        int64_t whole = 0;
        for (end = first; end < num && switch_over(p->room, leaves[end].leaf, level) == s; end++) {
            whole += leaves[end].chains;
            free_below += leaves[end].free;
        }
        if (s >= 0 && whole >= chains) {
            list[count++] = (struct below){first, end, free_below};
        }
    }
    qsort(list, (size_t)count, sizeof *list, fullest);
    return count;
}

/* No more leaves and no worse domains, but all below one switch of the level: of several such
 * switches, the one with the least free. */
static bool spread_below(struct place_picking *p, struct leaf *leaves, int32_t num, int64_t chains,
                         int32_t level, struct spread_cost most)
{
    struct below *list = calloc((size_t)num, sizeof *list);
    struct leaf *try = calloc((size_t)num, sizeof *try);
    ASSERT(list && try);
    int32_t count = list_below(p, leaves, num, chains, level, list);
    bool found = false;
    for (int32_t i = 0; i < count && !found; i++) {
        int32_t here = list[i].end - list[i].first;
        memcpy(try, &leaves[list[i].first], (size_t)here * sizeof *try);
        spread(p, try, here, chains, false);
        struct spread_cost cost = cost_of(p, try, here);
        found = cost.leaves <= most.leaves && cost.cells <= most.cells;
        for (int32_t l = 0; l < num && found; l++) {
            leaves[l].taken = 0;
        }
        if (found) {
            memcpy(&leaves[list[i].first], try, (size_t)here * sizeof *try);
        }
    }
    free(list);
    free(try);
    return found;
}

void place_spread(struct place_picking *p, int64_t chains)
{
    const struct place_room *room = p->room;
    struct leaf *leaves = calloc((size_t)room->num_leaves, sizeof *leaves);
    ASSERT(leaves);
    int64_t whole;
    int32_t num = list_leaves(p, leaves, &whole), levels = free_map_fabric(room->map)->num_levels;
    spread(p, leaves, num, chains, whole < chains);
    if (whole >= chains) {
        struct spread_cost most = cost_of(p, leaves, num);
        for (int32_t l = 1; l < levels && !spread_below(p, leaves, num, chains, l, most); l++) {
        }
    }
    for (int32_t i = 0; i < num; i++) {
        int32_t l = leaves[i].leaf;
        place_pick_in(p, room->leaf_cell[l], room->leaf_cell[l + 1], leaves[i].taken);
    }
    free(leaves);
}
