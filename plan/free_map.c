#include "plan/free_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct free_map {
    const struct fabric *fabric;
    struct free_counts *counts;
    int32_t num;
    uint64_t *bits; /* by device; 1 = free */
};

static size_t num_words(const struct fabric *f)
{
    return ((size_t)f->num_devices + 63) / 64 + 1;
}

static struct free_map *map_new(const struct fabric *f, struct free_counts *counts)
{
    struct free_map *m = malloc(sizeof *m);
    ASSERT(m);
    *m = (struct free_map){.fabric = f, .counts = counts};
    m->bits = calloc(num_words(f), sizeof *m->bits);
    ASSERT(m->bits);
    return m;
}

struct free_map *free_map_new(const struct fabric *f)
{
    struct free_map *m = map_new(f, free_counts_new(f));
    for (int32_t d = 0; d < f->num_devices; d++) {
        m->bits[d / 64] |= (uint64_t)1 << (d % 64);
    }
    m->num = f->num_devices;
    return m;
}

struct free_map *free_map_copy(const struct free_map *from)
{
    struct free_map *m = map_new(from->fabric, free_counts_copy(from->counts));
    m->num = from->num;
    memcpy(m->bits, from->bits, num_words(m->fabric) * sizeof *m->bits);
    return m;
}

void free_map_set(struct free_map *m, const struct free_map *from)
{
    ASSERT(m->fabric == from->fabric);
    free_counts_set(m->counts, from->counts);
    m->num = from->num;
    memcpy(m->bits, from->bits, num_words(m->fabric) * sizeof *m->bits);
}

void free_map_free(struct free_map *m)
{
    if (m) {
        free_counts_free(m->counts);
        free(m->bits);
        free(m);
    }
}

const struct fabric *free_map_fabric(const struct free_map *m)
{
    return m->fabric;
}

const struct free_counts *free_map_counts(const struct free_map *m)
{
    return m->counts;
}

bool free_map_has(const struct free_map *m, int32_t device)
{
    return m->bits[device / 64] >> (device % 64) & 1;
}

bool free_map_take(struct free_map *m, int32_t device)
{
    ASSERT(device >= 0 && device < m->fabric->num_devices);
    if (!free_map_has(m, device)) {
        return false;
    }
    m->bits[device / 64] &= ~((uint64_t)1 << (device % 64));
    m->num--;
    free_counts_take(m->counts, device);
    return true;
}

bool free_map_give(struct free_map *m, int32_t device)
{
    ASSERT(device >= 0 && device < m->fabric->num_devices);
    if (free_map_has(m, device)) {
        return false;
    }
    m->bits[device / 64] |= (uint64_t)1 << (device % 64);
    m->num++;
    free_counts_give(m->counts, device);
    return true;
}

int32_t free_map_num(const struct free_map *m)
{
    return m->num;
}

int32_t free_map_num_type(const struct free_map *m, int32_t type)
{
    return type < 0 ? m->num : free_counts_num(m->counts, type);
}

int32_t free_map_next(const struct free_map *m, int32_t from, int32_t end)
{
    if (from >= end) {
        return -1;
    }
    int32_t w = from / 64, last = (end - 1) / 64;
    uint64_t word = m->bits[w] & ~(uint64_t)0 << (from % 64);
    while (word == 0 && w < last) {
        word = m->bits[++w];
    }
    int32_t d = word ? w * 64 + __builtin_ctzll(word) : end;
    return d < end ? d : -1;
}
