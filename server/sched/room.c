#include "server/sched/room.h"

#include <stdlib.h>
#include <string.h>

/* Devices first to end - 1 are a domain, or a node's part of one. sums: by type, where a type's
 * groups are counted; -1 = nowhere yet. */
static void add_cells(struct room_grid *g, const struct fabric *f, int32_t first, int32_t end,
                      int32_t *sums)
{
    int32_t cells[FABRIC_MAX_TYPES], had = g->num_cells;
    memset(cells, -1, sizeof cells);
    for (int32_t d = first; d < end; d++) {
        int16_t type = f->devices[d].type;
        if (cells[type] < 0) {
            sums[type] = sums[type] < 0 ? g->num_sums++ : sums[type];
            cells[type] = g->num_cells;
            g->cells[g->num_cells++] = (struct room_cell){
                .first = first, .num = end - first, .type = type, .sum = sums[type]};
        }
        g->cell_of[d] = cells[type];
    }
    for (int32_t i = had; i < g->num_cells; i++) {
        g->cells[i].is_mixed = g->num_cells - had > 1;
    }
}

static void make_grid(struct room_grid *g, const struct fabric *f, bool by_node)
{
    size_t n = (size_t)f->num_devices + 1;
    int32_t sums[FABRIC_MAX_TYPES], first = 0;
    g->cell_of = malloc(n * sizeof *g->cell_of);
    g->cells = malloc(n * sizeof *g->cells);
    ASSERT(g->cell_of && g->cells);
    memset(sums, -1, sizeof sums);
    for (int32_t d = 1; d <= f->num_devices; d++) {
        bool ends = d == f->num_devices;
        bool next_node = !ends && by_node && f->devices[d].node != f->devices[first].node;
        if (ends || next_node || f->devices[d].domain != f->devices[first].domain) {
            add_cells(g, f, first, d, sums);
            first = d;
        }
        if (next_node) {
            memset(sums, -1, sizeof sums);
        }
    }
}

void room_init(struct room *r, const struct fabric *f)
{
    *r = (struct room){.f = f};
    size_t n = (size_t)f->num_devices + 1;
    make_grid(&r->wide, f, false);
    make_grid(&r->narrow, f, true);
    r->num = malloc(n * sizeof *r->num);
    r->groups = malloc(n * sizeof *r->groups);
    ASSERT(r->num && r->groups);
}

void room_deinit(struct room *r)
{
    free(r->wide.cell_of);
    free(r->wide.cells);
    free(r->narrow.cell_of);
    free(r->narrow.cells);
    free(r->num);
    free(r->groups);
}

/* Without the instruction, which not every processor has. Source: Hacker's Delight, 5-1. */
static int32_t count_word(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int32_t)(x * 0x0101010101010101u >> 56);
}

/* Bits of both from first on, num of them. */
static int32_t count_bits(const uint64_t *a, const uint64_t *b, int32_t first, int32_t num)
{
    int32_t sum = 0;
    while (num > 0) {
        int32_t shift = first % 64, here = num < 64 - shift ? num : 64 - shift;
        uint64_t word = (a[first / 64] & b[first / 64]) >> shift;
        sum += count_word(here < 64 ? word & (((uint64_t)1 << here) - 1) : word);
        first += here;
        num -= here;
    }
    return sum;
}

static void add_each(struct room *r, const uint64_t *bits, const struct room_cell *c)
{
    for (int32_t d = c->first; d < c->first + c->num; d++) {
        if (r->f->devices[d].type == c->type && (bits[d / 64] >> (d % 64) & 1)) {
            room_add(r, d);
        }
    }
}

void room_start(struct room *r, const struct want *w, const uint64_t *bits)
{
    const struct room_grid *g = w->one_node ? &r->narrow : &r->wide;
    r->want = w;
    r->grid = g;
    r->most = 0;
    memset(r->num, 0, (size_t)g->num_cells * sizeof *r->num);
    memset(r->groups, 0, (size_t)g->num_sums * sizeof *r->groups);
    if (w->num_suits < g->num_cells) {
        for (int32_t i = 0; i <= r->f->num_devices / 64; i++) {
            for (uint64_t word = bits[i] & w->suits[i]; word; word &= word - 1) {
                room_add(r, i * 64 + __builtin_ctzll(word));
            }
        }
        return;
    }
    /* Mostly a power of two: a division a cell would be most of the work. */
    bool is_power = (w->tensor & (w->tensor - 1)) == 0;
    int32_t shift = __builtin_ctz((uint32_t)w->tensor);
    for (int32_t i = 0; i < g->num_cells; i++) {
        const struct room_cell *c = &g->cells[i];
        if (c->is_mixed) {
            add_each(r, bits, c);
        } else {
            r->num[i] = count_bits(bits, w->suits, c->first, c->num);
            r->groups[c->sum] += is_power ? r->num[i] >> shift : r->num[i] / w->tensor;
        }
    }
    r->most = -1;
}

void room_add(struct room *r, int32_t device)
{
    if (want_suits(r->want, device)) {
        int32_t cell = r->grid->cell_of[device], num = ++r->num[cell];
        int32_t *groups = &r->groups[r->grid->cells[cell].sum];
        *groups += num % r->want->tensor == 0;
        r->most = r->most >= 0 && *groups > r->most ? *groups : r->most;
    }
}

void room_drop(struct room *r, int32_t device)
{
    if (want_suits(r->want, device)) {
        int32_t cell = r->grid->cell_of[device], num = r->num[cell]--;
        int32_t *groups = &r->groups[r->grid->cells[cell].sum];
        r->most = num % r->want->tensor == 0 && *groups == r->most ? -1 : r->most;
        *groups -= num % r->want->tensor == 0;
    }
}

int32_t room_size(struct room *r)
{
    bool known = r->most >= 0;
    r->most = known ? r->most : 0;
    for (int32_t i = 0; !known && i < r->grid->num_sums; i++) {
        r->most = r->groups[i] > r->most ? r->groups[i] : r->most;
    }
    return r->most * r->want->tensor;
}
