/* Reservations: the devices that a job which doesn't fit is to get, and when.
 *
 * A job gets one if it could use a device that no earlier reservation looks after. So the first
 * job blocked on each type has one, and where an earlier one is pinned to some nodes, the first
 * that could use the others; it is enough, since the job behind it is the first one day. */
#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

/* May a job that would be gone at its hard end run on what is reserved? Where nobody knows when
 * the reserved job could start, it may if it can be stopped for that one. */
static bool may_pass(const struct sched *s, const struct reservation *r, size_t job)
{
    const struct sched_options *o = s->v->options;
    int64_t end_ms = s->seats[job].hard_end_ms;
    if (!o->backfill || end_ms == SCHED_NEVER) {
        return false;
    }
    if (r->shadow_ms == SCHED_NEVER) {
        return o->preemption && s->v->jobs[job].evictions < o->max_evictions;
    }
    return end_ms <= r->shadow_ms;
}

uint64_t reserve_mask(const struct sched *s, size_t job)
{
    uint64_t mask = 0;
    for (int32_t i = 0; i < s->num_reservations; i++) {
        mask |= (uint64_t)!may_pass(s, &s->reservations[i], job) << i;
    }
    return mask;
}

int64_t reserve_end_ms(const struct sched *s, const struct sched_run *r, bool stops)
{
    int64_t end_ms = r->end_ms < r->hard_end_ms ? r->end_ms : r->hard_end_ms;
    if (stops || r->stopping || r->yields_to != 0) {
        int64_t gone_ms = sched_add_ms(s->v->now_ms, s->v->options->grace_ms);
        end_ms = gone_ms < end_ms ? gone_ms : end_ms;
    }
    return end_ms > s->v->now_ms ? end_ms : s->v->now_ms;
}

bool reserve_leaves(const struct sched *s, size_t run)
{
    const struct sched_run *r = &s->v->runs[run];
    return !r->is_stuck && (r->stopping || r->yields_to != 0 || s->stops[run]);
}

static int compare(const void *a, const void *b)
{
    const struct coming *x = a, *y = b;
    if (x->end_ms != y->end_ms) {
        return x->end_ms < y->end_ms ? -1 : 1;
    }
    if (x->started_ms != y->started_ms) {
        return x->started_ms < y->started_ms ? -1 : 1;
    }
    if (x->run != y->run) {
        return x->run < y->run ? -1 : 1;
    }
    return (x->start > y->start) - (x->start < y->start);
}

static void coming_build(struct sched *s)
{
    const struct sched_view *v = s->v;
    s->num_coming = 0;
    for (size_t i = 0; i < v->num_runs; i++) {
        const struct sched_run *r = &v->runs[i];
        if (!r->is_stuck) {
            s->coming[s->num_coming++] =
                (struct coming){.end_ms = reserve_end_ms(s, r, s->stops[i]),
                                .started_ms = r->started_ms,
                                .run = (int32_t)i};
        }
    }
    for (size_t i = 0; i < s->num_decisions; i++) {
        if (s->decisions[i].kind == SCHED_START) {
            s->coming[s->num_coming++] =
                (struct coming){.end_ms = s->seats[s->decisions[i].job].hard_end_ms,
                                .started_ms = v->now_ms,
                                .run = -1,
                                .start = i};
        }
    }
    qsort(s->coming, s->num_coming, sizeof *s->coming, compare);
}

static const struct device_set *coming_set(const struct sched *s, const struct coming *c)
{
    return c->run >= 0 ? s->v->runs[c->run].devices : s->decisions[c->start].set;
}

static bool is_covered(struct sched *s, struct want *w)
{
    if (!w->is_covered) {
        w->is_covered = true;
        for (int32_t i = 0; i <= s->f->num_devices / 64; i++) {
            w->is_covered = w->is_covered && (w->suits[i] & ~s->covered[i]) == 0;
        }
    }
    return w->is_covered;
}

/* When do enough come free? num_coming where they never do; then behind those of that moment. */
static size_t find_moment(struct sched *s, size_t job, uint64_t mask)
{
    struct room *room = &s->room;
    room_start(room, want_table_get(s->wants, s->seats[job].want));
    room_add_all(room, sched_map(s, mask)->bits, INT32_MAX);
    size_t i = 0;
    int32_t need = s->v->jobs[job].num_devices;
    for (; i < s->num_coming && room_size(room) < need; i++) {
        const struct device_set *set = coming_set(s, &s->coming[i]);
        for (int32_t k = 0; k < device_set_num(set); k++) {
            if (sched_may_use(s, set->device[k], job, mask)) {
                room_add(room, set->device[k]);
            }
        }
    }
    if (room_size(room) < need) {
        return SIZE_MAX;
    }
    while (i > 0 && i < s->num_coming && s->coming[i].end_ms == s->coming[i - 1].end_ms &&
           s->coming[i].end_ms != SCHED_NEVER) {
        i++;
    }
    return i;
}

static bool place_then(struct sched *s, size_t job, uint64_t mask, size_t num_coming,
                       int32_t *devices)
{
    free_map_set(s->whatif, sched_map(s, mask)->map);
    for (size_t i = 0; i < num_coming; i++) {
        const struct device_set *set = coming_set(s, &s->coming[i]);
        for (int32_t k = 0; k < device_set_num(set); k++) {
            if (sched_may_use(s, set->device[k], job, mask)) {
                free_map_give(s->whatif, set->device[k]);
            }
        }
    }
    return place_find(s->whatif, &s->v->jobs[job].place, devices, NULL, NULL) == PLACE_OK;
}

/* Without backfill nobody overtakes on any device that the job could use. */
static int32_t keep_all(struct sched *s, const struct want *w, int32_t **devices)
{
    int32_t num = 0;
    *devices = sched_must(realloc(*devices, ((size_t)s->f->num_devices + 1) * sizeof **devices));
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        if (want_suits(w, d)) {
            (*devices)[num++] = d;
        }
    }
    return num;
}

void reserve_try(struct sched *s, size_t job, uint64_t mask)
{
    struct want *w = want_table_get(s->wants, s->seats[job].want);
    if (s->num_reservations == SCHED_MAX_RESERVATIONS || is_covered(s, w)) {
        return;
    }
    coming_build(s);
    size_t moment = find_moment(s, job, mask);
    int32_t num = s->v->jobs[job].num_devices;
    int32_t *devices = sched_must(malloc(((size_t)num + 1) * sizeof *devices));
    if (moment == SIZE_MAX || !place_then(s, job, mask, moment, devices)) {
        free(devices);
        return;
    }
    struct reservation *r = &s->reservations[s->num_reservations];
    int64_t shadow_ms = moment > 0 ? s->coming[moment - 1].end_ms : s->v->now_ms;
    if (!s->v->options->backfill) {
        num = keep_all(s, w, &devices);
    }
    *r = (struct reservation){.job = job, .shadow_ms = shadow_ms, .devices = devices, .num = num};
    for (int32_t i = 0; i < num; i++) {
        s->reserved[devices[i]] |= (uint64_t)1 << s->num_reservations;
    }
    for (int32_t i = 0; i <= s->f->num_devices / 64; i++) {
        s->covered[i] |= w->suits[i];
    }
    s->seats[job].reservation = s->num_reservations++;
    s->num_maps = 1;
    if (shadow_ms > s->v->now_ms) {
        sched_wake(s, shadow_ms);
    }
}
