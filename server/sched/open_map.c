/* Which devices are free, for those who may use what is reserved and those who may not. */
#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

static void take(struct open_map *m, int32_t device)
{
    free_map_take(m->map, device);
    m->bits[device / 64] &= ~((uint64_t)1 << (device % 64));
}

static struct open_map *add_map(struct sched *s, uint64_t mask)
{
    /* More are asked for only where many reservations differ in time; they are made anew then. */
    s->num_maps = s->num_maps == SCHED_MAX_MAPS ? 1 : s->num_maps;
    struct open_map *m = &s->maps[s->num_maps++];
    m->mask = mask;
    if (!m->map) {
        size_t num_words = (size_t)s->f->num_devices / 64 + 1;
        m->map = sched_must(free_map_copy(s->all));
        m->bits = sched_must(malloc(num_words * sizeof *m->bits));
    }
    return m;
}

const struct open_map *open_map_get(struct sched *s, uint64_t mask)
{
    for (int32_t i = 0; i < s->num_maps; i++) {
        if (s->maps[i].mask == mask) {
            return &s->maps[i];
        }
    }
    struct open_map *m = add_map(s, mask);
    free_map_set(m->map, s->maps[0].map);
    memcpy(m->bits, s->maps[0].bits, ((size_t)s->f->num_devices / 64 + 1) * sizeof *m->bits);
    for (int32_t i = 0; i < s->num_reservations; i++) {
        const struct reservation *r = &s->reservations[i];
        for (int32_t k = 0; (mask >> i & 1) && k < r->num; k++) {
            take(m, r->devices[k]);
        }
    }
    return m;
}

void open_map_take(struct sched *s, int32_t device)
{
    for (int32_t i = 0; i < s->num_maps; i++) {
        take(&s->maps[i], device);
    }
}

bool open_map_update(struct sched *s)
{
    s->num_maps = 0;
    struct open_map *m = add_map(s, 0);
    if (!s->has_passed) {
        free_map_set(m->map, s->none);
        memset(m->bits, 0, ((size_t)s->f->num_devices / 64 + 1) * sizeof *m->bits);
    }
    bool grew = !s->has_passed;
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        bool is_free = s->holder[d] == HOLDER_NONE && sched_may_use(s, d, SIZE_MAX, 0);
        bool was_free = m->bits[d / 64] >> (d % 64) & 1;
        if (is_free && !was_free) {
            free_map_give(m->map, d);
            m->bits[d / 64] |= (uint64_t)1 << (d % 64);
            grew = true;
        } else if (!is_free && was_free) {
            take(m, d);
        }
    }
    return grew;
}
