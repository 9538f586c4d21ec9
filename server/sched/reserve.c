/* Reservations: the devices that a job which doesn't fit is to get, and when.
 *
 * A job gets one if it could use a device that no earlier reservation looks after. So the first
 * job blocked on each type has one, and where an earlier one is pinned to some nodes, the first
 * that could use the others; it is enough, since the job behind it is the first one day.
 *
 * A job within its tenant's quota is not held up by the reservation of one that isn't: it could
 * take the devices back from that one as soon as it runs. */
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
    uint64_t mask = reserve_later(s, job);
    for (int32_t i = 0; i < s->num_reservations; i++) {
        if ((mask >> i & 1) && may_pass(s, &s->reservations[i], job)) {
            mask &= ~((uint64_t)1 << i);
        }
    }
    return mask;
}

uint64_t reserve_later(const struct sched *s, size_t job)
{
    uint64_t all = ((uint64_t)1 << s->num_reservations) - 1;
    return s->owed_mask == all || !share_within_quota(s, job) ? all : s->owed_mask;
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

void reserve_possible(struct sched *s, bool reclaims)
{
    int32_t num_words = s->f->num_devices / 64 + 1;
    if (!s->has_possible) {
        memset(s->possible, 0, (size_t)num_words * sizeof *s->possible);
        for (int32_t d = 0; d < s->f->num_devices; d++) {
            bool is_stuck = s->holder[d] >= 0 && s->v->runs[s->holder[d]].is_stuck;
            bool comes = !is_stuck && !(s->v->drained && s->v->drained[d]);
            s->possible[d / 64] |= (uint64_t)comes << (d % 64);
        }
        s->has_possible = true;
    }
    for (int32_t i = 0; i < num_words; i++) {
        s->words[i] = s->possible[i] & ~s->kept[reclaims][i];
    }
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

static void keep(struct sched *s, size_t job, const struct want *w, struct reservation r)
{
    uint64_t bit = (uint64_t)1 << s->num_reservations;
    bool is_owed = share_within_quota(s, job);
    s->owed_mask |= is_owed ? bit : 0;
    for (int32_t i = 0; i < r.num; i++) {
        s->reserved[r.devices[i]] |= bit;
        s->kept[0][r.devices[i] / 64] |= (uint64_t)1 << (r.devices[i] % 64);
        s->kept[1][r.devices[i] / 64] |= (uint64_t)is_owed << (r.devices[i] % 64);
    }
    for (int32_t i = 0; i <= s->f->num_devices / 64; i++) {
        s->covered[i] |= w->suits[i];
    }
    s->seats[job].reservation = s->num_reservations;
    s->reservations[s->num_reservations++] = r;
    s->num_maps = 1; /* the others lack it */
}

void reserve_try(struct sched *s, size_t job)
{
    struct want *w = want_table_get(s->wants, s->seats[job].want);
    int32_t need = s->v->jobs[job].num_devices;
    bool reclaims = share_within_quota(s, job);
    if (s->num_reservations == SCHED_MAX_RESERVATIONS || is_covered(s, w) ||
        need >= w->impossible[reclaims]) {
        return;
    }
    reserve_possible(s, reclaims);
    room_start(&s->room, w, s->words);
    if (room_size(&s->room) < need) {
        w->impossible[reclaims] = room_size(&s->room) + 1;
        return;
    }
    /* It starts later than now: whom it could pass now says nothing. */
    uint64_t mask = reserve_later(s, job);
    size_t moment = coming_moment(s, job, mask);
    if (moment == SIZE_MAX) {
        return;
    }
    struct reservation r = {.job = job, .num = need};
    r.shadow_ms = moment > 0 ? s->coming[moment - 1].end_ms : s->v->now_ms;
    r.devices = sched_must(malloc(((size_t)r.num + 1) * sizeof *r.devices));
    free_map_set(s->whatif, open_map_get(s, mask)->map);
    coming_give(s, moment, job, mask, s->whatif);
    if (place_find(s->whatif, &s->v->jobs[job].place, r.devices, NULL, NULL) != PLACE_OK) {
        free(r.devices);
        return;
    }
    if (!s->v->options->backfill) {
        r.num = keep_all(s, w, &r.devices);
    }
    keep(s, job, w, r);
    if (r.shadow_ms > s->v->now_ms) {
        sched_wake(s, r.shadow_ms);
    }
}
