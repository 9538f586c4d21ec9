#include "server/sched/room.h"

#include <stdlib.h>
#include <string.h>

void room_init(struct room *r, const struct fabric *f)
{
    *r = (struct room){.f = f};
    r->cell_of = malloc(((size_t)f->num_devices + 1) * sizeof *r->cell_of);
    r->num = malloc(((size_t)f->num_devices + 1) * sizeof *r->num);
    ASSERT(r->cell_of && r->num);
    int32_t cells[FABRIC_MAX_TYPES];
    for (int32_t i = 0; i < f->num_devices; i++) {
        const struct fabric_device *d = &f->devices[i];
        if (i == 0 || d->domain != f->devices[i - 1].domain) {
            memset(cells, -1, sizeof cells);
        }
        if (cells[d->type] < 0) {
            cells[d->type] = r->num_cells++;
        }
        r->cell_of[i] = cells[d->type];
    }
}

void room_deinit(struct room *r)
{
    free(r->cell_of);
    free(r->num);
}

void room_start(struct room *r, const struct want *w)
{
    r->want = w;
    memset(r->num, 0, (size_t)r->num_cells * sizeof *r->num);
    memset(r->groups, 0, sizeof r->groups);
}

void room_add(struct room *r, int32_t device)
{
    if (want_suits(r->want, device)) {
        int32_t num = ++r->num[r->cell_of[device]];
        r->groups[r->f->devices[device].type] += num % r->want->tensor == 0;
    }
}

void room_add_all(struct room *r, const uint64_t *bits, int32_t num)
{
    for (int32_t i = 0; i <= r->f->num_devices / 64; i++) {
        for (uint64_t word = bits[i] & r->want->suits[i]; word; word &= word - 1) {
            room_add(r, i * 64 + __builtin_ctzll(word));
        }
        if (i % 16 == 0 && room_size(r) >= num) {
            return;
        }
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
