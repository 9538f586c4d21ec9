#include "server/sched/room.h"

#include <stdlib.h>
#include <string.h>

/* Devices first to end - 1 are a domain. */
static void add_cells(struct room *r, int32_t first, int32_t end)
{
    int32_t cells[FABRIC_MAX_TYPES], had = r->num_cells;
    memset(cells, -1, sizeof cells);
    for (int32_t d = first; d < end; d++) {
        int16_t type = r->f->devices[d].type;
        if (cells[type] < 0) {
            cells[type] = r->num_cells;
            r->cells[r->num_cells++] =
                (struct room_cell){.first = first, .num = end - first, .type = type};
        }
        r->cell_of[d] = cells[type];
    }
    for (int32_t i = had; i < r->num_cells; i++) {
        r->cells[i].is_mixed = r->num_cells - had > 1;
    }
}

void room_init(struct room *r, const struct fabric *f)
{
    *r = (struct room){.f = f};
    size_t n = (size_t)f->num_devices + 1;
    r->cell_of = malloc(n * sizeof *r->cell_of);
    r->num = malloc(n * sizeof *r->num);
    r->cells = malloc(n * sizeof *r->cells);
    ASSERT(r->cell_of && r->num && r->cells);
    int32_t first = 0;
    for (int32_t d = 1; d <= f->num_devices; d++) {
        if (d == f->num_devices || f->devices[d].domain != f->devices[first].domain) {
            add_cells(r, first, d);
            first = d;
        }
    }
}

void room_deinit(struct room *r)
{
    free(r->cell_of);
    free(r->num);
    free(r->cells);
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
    r->want = w;
    memset(r->num, 0, (size_t)r->num_cells * sizeof *r->num);
    memset(r->groups, 0, sizeof r->groups);
    if (w->num_suits < r->num_cells) {
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
    for (int32_t i = 0; i < r->num_cells; i++) {
        const struct room_cell *c = &r->cells[i];
        if (c->is_mixed) {
            add_each(r, bits, c);
        } else {
            r->num[i] = count_bits(bits, w->suits, c->first, c->num);
            r->groups[c->type] += is_power ? r->num[i] >> shift : r->num[i] / w->tensor;
        }
    }
}

void room_add(struct room *r, int32_t device)
{
    if (want_suits(r->want, device)) {
        int32_t num = ++r->num[r->cell_of[device]];
        r->groups[r->f->devices[device].type] += num % r->want->tensor == 0;
    }
}

void room_drop(struct room *r, int32_t device)
{
    if (want_suits(r->want, device)) {
        int32_t num = r->num[r->cell_of[device]]--;
        r->groups[r->f->devices[device].type] -= num % r->want->tensor == 0;
    }
}

int32_t room_size(const struct room *r)
{
    int32_t most = 0;
    for (int32_t i = 0; i < r->f->num_types; i++) {
        most = r->groups[i] > most ? r->groups[i] : most;
    }
    return most * r->want->tensor;
}
