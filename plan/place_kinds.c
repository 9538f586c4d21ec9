#include "plan/place_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void place_kinds_new(struct place_kinds *k, const struct place_room *room, int32_t atom_devices)
{
    int32_t most = room->left || room->num_cells < room->max ? room->num_cells : room->max;
    *k = (struct place_kinds){.room = room, .atom = atom_devices};
    k->kind = calloc((size_t)most + 1, sizeof *k->kind);
    k->tally = calloc((size_t)room->max + 2, sizeof *k->tally);
    ASSERT(k->kind && k->tally);
}

void place_kinds_free(struct place_kinds *k)
{
    free(k->kind);
    free(k->tally);
}

static int compare(const void *a, const void *b)
{
    const struct place_kind *x = a, *y = b;
    return x->atoms != y->atoms ? (x->atoms > y->atoms ? -1 : 1)
                                : (x->left > y->left) - (x->left < y->left);
}

/* The same for a room with devices that don't suit: cells differ in what they leave, too. */
static int64_t sort_particular(struct place_kinds *k, int32_t first, int32_t end)
{
    int64_t sum = 0;
    for (int32_t c = first; c < end; c++) {
        int32_t n = k->room->free[c], left = k->room->left[c], i = 0;
        if (n < k->atom) {
            continue;
        }
        while (i < k->num && (k->kind[i].free != n || k->kind[i].left != left)) {
            i++;
        }
        if (i == k->num) {
            k->kind[k->num++] = (struct place_kind){.free = n, .atoms = n / k->atom, .left = left};
        }
        k->kind[i].have++;
        sum += n / k->atom;
    }
    qsort(k->kind, (size_t)k->num, sizeof *k->kind, compare);
    return sum;
}

int64_t place_kinds_sort(struct place_kinds *k, int32_t first, int32_t end)
{
    int32_t max = 0;
    int64_t sum = 0;
    k->num = 0;
    if (k->room->left) {
        return sort_particular(k, first, end);
    }
    for (int32_t c = first; c < end; c++) {
        int32_t n = k->room->free[c];
        if (n >= k->atom) {
            k->tally[n]++;
            max = n > max ? n : max;
        }
    }
    for (int32_t atoms = max / k->atom; atoms > 0; atoms--) {
        for (int32_t n = atoms * k->atom; n < (atoms + 1) * k->atom && n <= max; n++) {
            if (k->tally[n] > 0) {
                k->kind[k->num++] =
                    (struct place_kind){.free = n, .atoms = atoms, .left = n, .have = k->tally[n]};
                sum += (int64_t)atoms * k->tally[n];
                k->tally[n] = 0;
            }
        }
    }
    return sum;
}

/* ---- quick ---- */

/* One cell of a larger kind gives way to one of a smaller kind, while `spare` atoms too many are
 * chosen. */
static void give_back(struct place_kinds *k, int32_t larger, int64_t *spare)
{
    struct place_kind *from = &k->kind[larger];
    for (int32_t j = k->num - 1; j > larger && from->chosen > 0;) {
        int32_t first = j; /* of those with as many atoms: they ascend in left */
        while (first > larger + 1 && k->kind[first - 1].atoms == k->kind[j].atoms) {
            first--;
        }
        for (int32_t i = first; i <= j; i++) {
            struct place_kind *to = &k->kind[i];
            while (from->chosen > 0 && to->chosen < to->have && to->left < from->left &&
                   from->atoms - to->atoms <= *spare) {
                from->chosen--;
                to->chosen++;
                *spare -= from->atoms - to->atoms;
            }
        }
        j = first - 1;
    }
}

static place_cost choose_quickly(struct place_kinds *k, int64_t atoms)
{
    int64_t rest = atoms;
    int32_t last = 0;
    for (int32_t i = 0; i < k->num && rest > 0; i++) {
        struct place_kind *kind = &k->kind[i];
        int64_t num = (rest + kind->atoms - 1) / kind->atoms;
        kind->chosen = num < kind->have ? (int32_t)num : kind->have;
        rest -= (int64_t)kind->chosen * kind->atoms;
        last = i;
    }
    ASSERT(rest <= 0);
    int64_t spare = -rest;
    for (int32_t i = last; i >= 0; i--) {
        give_back(k, i, &spare);
    }
    place_cost cost = 0;
    for (int32_t i = 0; i < k->num; i++) {
        cost += k->kind[i].chosen * (PLACE_COST_CELL + k->kind[i].left);
    }
    return cost;
}

/* ---- exact ---- */

/* Cells that can be of use: no more of a kind than would hold everything. */
static int32_t useful_cells(const struct place_kinds *k, int64_t atoms)
{
    int32_t num = 0;
    for (int32_t i = 0; i < k->num; i++) {
        int64_t enough = (atoms + k->kind[i].atoms - 1) / k->kind[i].atoms;
        num += enough < k->kind[i].have ? (int32_t)enough : k->kind[i].have;
    }
    return num;
}

/* costs[a] of a atoms or more, cell by cell: Bellman. used[cell * (atoms + 1) + a]: is the cell a
 * part of it? kind_of[cell]. */
static void solve(const struct place_kinds *k, int32_t atoms, place_cost *costs, bool *used,
                  int32_t *kind_of)
{
    int32_t cell = 0;
    for (int32_t a = 0; a <= atoms; a++) {
        costs[a] = a == 0 ? 0 : INT64_MAX / 2;
    }
    for (int32_t i = 0; i < k->num; i++) {
        const struct place_kind *kind = &k->kind[i];
        int32_t enough = (atoms + kind->atoms - 1) / kind->atoms;
        int32_t have = enough < kind->have ? enough : kind->have;
        for (int32_t n = 0; n < have; n++, cell++) {
            if (kind_of) {
                kind_of[cell] = i;
            }
            for (int32_t a = atoms; a > 0; a--) {
                place_cost with =
                    costs[a > kind->atoms ? a - kind->atoms : 0] + PLACE_COST_CELL + kind->left;
                if (with < costs[a]) {
                    costs[a] = with;
                    if (used) {
                        used[(int64_t)cell * (atoms + 1) + a] = true;
                    }
                }
            }
        }
    }
}

bool place_kinds_costs(const struct place_kinds *k, int32_t atoms, place_cost *costs)
{
    if ((int64_t)useful_cells(k, atoms) * (atoms + 1) > PLACE_KINDS_EXACT_MAX) {
        return false;
    }
    solve(k, atoms, costs, NULL, NULL);
    return true;
}

static place_cost choose_exactly(struct place_kinds *k, int32_t atoms, int32_t num_cells)
{
    place_cost costs[PLACE_KINDS_EXACT_MAX + 1];
    bool used[PLACE_KINDS_EXACT_MAX + 1] = {false};
    int32_t kind_of[PLACE_KINDS_EXACT_MAX];
    solve(k, atoms, costs, used, kind_of);
    for (int32_t i = 0; i < k->num; i++) {
        k->kind[i].chosen = 0;
    }
    int32_t a = atoms;
    for (int32_t cell = num_cells - 1; cell >= 0 && a > 0; cell--) {
        if (used[cell * (atoms + 1) + a]) {
            struct place_kind *kind = &k->kind[kind_of[cell]];
            kind->chosen++;
            a = a > kind->atoms ? a - kind->atoms : 0;
        }
    }
    ASSERT(a == 0);
    return costs[atoms];
}

place_cost place_kinds_choose(struct place_kinds *k, int64_t atoms)
{
    place_cost quick = choose_quickly(k, atoms);
    /* One cell, one kind of cell, or nothing left over: none is better. */
    if (k->num == 1 || quick < 2 * PLACE_COST_CELL || quick % PLACE_COST_CELL == atoms * k->atom) {
        return quick;
    }
    int32_t cells = atoms < PLACE_KINDS_EXACT_MAX ? useful_cells(k, atoms) : 0;
    if (cells == 0 || cells * (atoms + 1) > PLACE_KINDS_EXACT_MAX) {
        return quick;
    }
    return choose_exactly(k, (int32_t)atoms, cells);
}

int32_t place_kinds_take(struct place_kinds *k, int32_t first, int32_t end, int64_t atoms,
                         struct place_portion *out)
{
    int32_t num = 0;
    for (int32_t c = first; c < end && atoms > 0; c++) {
        int32_t n = k->room->free[c], left = k->room->left ? k->room->left[c] : n, i = 0;
        while (i < k->num && (k->kind[i].free != n || k->kind[i].left != left)) {
            i++;
        }
        if (i < k->num && k->kind[i].chosen > 0) {
            int32_t here = k->kind[i].atoms < atoms ? k->kind[i].atoms : (int32_t)atoms;
            k->kind[i].chosen--;
            out[num++] = (struct place_portion){c, here};
            atoms -= here;
        }
    }
    ASSERT(atoms == 0);
    return num;
}
