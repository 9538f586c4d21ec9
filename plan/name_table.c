#include "plan/name_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* FNV-1a. */
static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        h = (h ^ *p) * 16777619u;
    }
    return h ^ (h >> 15);
}

/* The slot that holds name, or the empty one where it belongs. */
static uint32_t slot_of(const struct name_table *t, const char *name)
{
    uint32_t mask = t->num_slots - 1;
    uint32_t i = hash(name) & mask;
    while (t->slots[i] != 0 && strcmp(t->names[t->slots[i] - 1], name) != 0) {
        i = (i + 1) & mask;
    }
    return i;
}

static void grow(struct name_table *t)
{
    t->cap = t->cap ? 2 * t->cap : 8;
    t->names = realloc(t->names, (size_t)t->cap * sizeof *t->names);
    free(t->slots);
    t->num_slots = (uint32_t)t->cap * 2;
    t->slots = calloc(t->num_slots, sizeof *t->slots);
    ASSERT(t->names && t->slots);
    for (int32_t i = 0; i < t->num; i++) {
        t->slots[slot_of(t, t->names[i])] = i + 1;
    }
}

int32_t name_table_add(struct name_table *t, const char *name)
{
    int32_t known = name_table_find(t, name);
    if (known >= 0) {
        return known;
    }
    if (t->num == t->cap) {
        grow(t);
    }
    uint32_t slot = slot_of(t, name);
    t->names[t->num] = name;
    t->slots[slot] = t->num + 1;
    return t->num++;
}

int32_t name_table_find(const struct name_table *t, const char *name)
{
    return t->num_slots ? t->slots[slot_of(t, name)] - 1 : -1;
}

void name_table_free(struct name_table *t)
{
    free(t->names);
    free(t->slots);
    memset(t, 0, sizeof *t);
}
