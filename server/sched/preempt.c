/* Makes room for a job that can't start otherwise: the fewest victims, in their order, whose
 * devices together with the free ones are enough. All of the place chosen is claimed at once, so
 * that what one job's victims free is never counted for another. */
#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

struct search {
    struct sched *s;
    size_t job;
    uint64_t mask;
    bool reclaims; /* for its tenant's quota */
    size_t *runs;  /* those chosen */
    size_t num;
    int64_t over; /* devices of its own tenant that have to go: it would be over its max */
};

/* Device k of the run, or -1: the job can't use it. */
static int32_t usable(const struct search *c, size_t run, int32_t k)
{
    const struct sched *s = c->s;
    int32_t d = s->v->runs[run].devices->device[k];
    return s->holder[d] == (int32_t)run && sched_may_use(s, d, c->job, c->mask) ? d : -1;
}

/* True: it is of use. */
static bool add(struct search *c, size_t run)
{
    int32_t num = 0;
    for (int32_t k = 0; k < device_set_num(c->s->v->runs[run].devices); k++) {
        int32_t d = usable(c, run, k);
        if (d >= 0) {
            room_add(&c->s->room, d);
            num += want_suits(c->s->room.want, d);
        }
    }
    int64_t was_over = c->over;
    c->over -= share_without(c->s, run, c->job);
    return num > 0 || (was_over > 0 && c->over < was_over);
}

static void drop(struct search *c, size_t run)
{
    for (int32_t k = 0; k < device_set_num(c->s->v->runs[run].devices); k++) {
        int32_t d = usable(c, run, k);
        if (d >= 0) {
            room_drop(&c->s->room, d);
        }
    }
    c->over += share_without(c->s, run, c->job);
}

static bool is_enough(const struct search *c)
{
    return c->over <= 0 && room_size(&c->s->room) >= c->s->v->jobs[c->job].num_devices;
}

static void add_free(struct search *c)
{
    struct sched *s = c->s;
    room_start(&s->room, want_table_get(s->wants, s->seats[c->job].want),
               open_map_get(s, c->mask)->bits);
    for (size_t i = 0; i < s->v->num_runs; i++) {
        if (coming_leaves(s, i)) {
            add(c, i);
        }
    }
}

/* Of the candidates those that are needed. False: all together aren't enough. */
static bool choose(struct search *c)
{
    size_t num = 0;
    victim_open(c->s, c->job);
    while (!is_enough(c) && victim_next(c->s, &c->runs[num])) {
        if (add(c, c->runs[num])) {
            num++;
        } else {
            drop(c, c->runs[num]);
        }
    }
    if (!is_enough(c)) {
        return false;
    }
    /* An earlier one may be of no use now: the most valuable goes free first. What is kept gathers
     * at the end. */
    size_t first = num;
    for (size_t i = num; i-- > 0;) {
        drop(c, c->runs[i]);
        if (!is_enough(c)) {
            add(c, c->runs[i]);
            c->runs[--first] = c->runs[i];
        }
    }
    c->num = num - first;
    memmove(c->runs, &c->runs[first], c->num * sizeof *c->runs);
    return c->num > 0;
}

static void give(struct search *c, size_t run)
{
    for (int32_t k = 0; k < device_set_num(c->s->v->runs[run].devices); k++) {
        int32_t d = usable(c, run, k);
        if (d >= 0) {
            free_map_give(c->s->whatif, d);
        }
    }
}

static bool place(struct search *c)
{
    struct sched *s = c->s;
    free_map_set(s->whatif, open_map_get(s, c->mask)->map);
    for (size_t i = 0; i < s->v->num_runs; i++) {
        if (coming_leaves(s, i)) {
            give(c, i);
        }
    }
    for (size_t i = 0; i < c->num; i++) {
        give(c, c->runs[i]);
    }
    return place_find(s->whatif, &s->v->jobs[c->job].place, s->scratch, NULL, NULL) == PLACE_OK;
}

static void claim(struct search *c)
{
    struct sched *s = c->s;
    const struct sched_job *j = &s->v->jobs[c->job];
    struct seat *seat = &s->seats[c->job];
    sched_decide(s, SCHED_CLAIM, c->job)->set = device_set_new(s->scratch, j->num_devices);
    for (int32_t i = 0; i < j->num_devices; i++) {
        int32_t d = s->scratch[i], holder = s->holder[d];
        sched_set_claimant(s, d, (int32_t)c->job);
        open_map_take(s, d);
        seat->claimed += holder < 0 || s->v->runs[holder].tenant != j->tenant;
    }
    for (size_t i = 0; i < c->num; i++) {
        s->stops[c->runs[i]] = true;
        sched_decide(s, SCHED_STOP, c->job)->run = c->runs[i];
    }
    s->held[j->tenant] += seat->claimed;
    seat->outcome = OUTCOME_CLAIMS;
    if (++s->num_preemptors == SCHED_MAX_PREEMPTORS) {
        sched_wake(s, sched_add_ms(s->v->now_ms, SCHED_SOON_MS));
    }
}

static bool may_leave(const struct search *c, size_t run)
{
    return coming_leaves(c->s, run) || victim_is_one(c->s, run, c->job, c->reclaims);
}

static void mark(struct sched *s, const struct device_set *set)
{
    for (int32_t i = 0; i < device_set_num(set); i++) {
        s->words[set->device[i] / 64] |= (uint64_t)1 << (set->device[i] % 64);
    }
}

/* Devices of those who may leave: all of them, or where few devices suit, these. */
static void mark_leaving(struct search *c, const struct want *w)
{
    struct sched *s = c->s;
    int32_t num_words = s->f->num_devices / 64 + 1;
    memset(s->words, 0, (size_t)num_words * sizeof *s->words);
    if (w->num_suits <= WANT_FEW) {
        for (int32_t i = 0; i < num_words; i++) {
            for (uint64_t word = w->suits[i]; word; word &= word - 1) {
                int32_t holder = s->holder[i * 64 + __builtin_ctzll(word)];
                bool leaves = holder >= 0 && may_leave(c, (size_t)holder);
                s->words[i] |= leaves ? word & -word : 0;
            }
        }
        s->looks += num_words + WANT_FEW;
        return;
    }
    for (size_t i = 0; i < s->v->num_runs; i++) {
        if (may_leave(c, i)) {
            mark(s, s->v->runs[i].devices);
        }
    }
    s->looks += s->f->num_devices / 2 + (int64_t)s->v->num_runs;
}

/* How large a gang fits on what is free and what is marked. */
static int32_t size_with_marked(struct search *c, const struct want *w)
{
    struct sched *s = c->s;
    const uint64_t *open = open_map_get(s, c->mask)->bits, *kept = s->kept[c->reclaims];
    for (int32_t i = 0; i <= s->f->num_devices / 64; i++) {
        s->words[i] = (s->words[i] & s->possible[i] & ~kept[i] & ~s->claimed[i]) | open[i];
    }
    room_start(&s->room, w, s->words);
    return room_size(&s->room);
}

/* If all left that may: for how many would there be room? Most who ask hear here, at little cost,
 * that it's too few. */
static int32_t largest_possible(struct search *c, const struct want *w)
{
    struct sched *s = c->s;
    share_borrowed(s);
    mark_leaving(c, w);
    return size_with_marked(c, w);
}

/* Will there be room, and its tenant be within its max, once those have left who leave anyway? */
static bool is_enough_anyway(struct search *c, struct want *w)
{
    struct sched *s = c->s;
    int64_t over = c->over;
    for (size_t i = 0; over > 0 && i < s->v->num_runs; i++) {
        over -= coming_leaves(s, i) ? share_without(s, i, c->job) : 0;
    }
    /* As long as nothing more is decided. */
    int64_t stamp = (int64_t)s->num_decisions * (SCHED_MAX_RESERVATIONS + 1) + s->num_reservations;
    stamp = stamp * 2 + c->reclaims;
    if (over <= 0 && w->leaving_stamp != stamp) {
        memset(s->words, 0, ((size_t)s->f->num_devices / 64 + 1) * sizeof *s->words);
        for (size_t i = 0; i < s->v->num_runs; i++) {
            if (coming_leaves(s, i)) {
                mark(s, s->v->runs[i].devices);
            }
        }
        w->leaving_size = size_with_marked(c, w);
        w->leaving_stamp = stamp;
    }
    return over <= 0 && w->leaving_size >= s->v->jobs[c->job].num_devices;
}

static bool search(struct search *c)
{
    c->runs = sched_must(malloc((c->s->v->num_runs + 1) * sizeof *c->runs));
    c->s->looks += c->s->f->num_devices;
    add_free(c);
    bool found = choose(c) && place(c);
    if (found) {
        claim(c);
    }
    free(c->runs);
    return found;
}

static bool is_spent(const struct sched *s)
{
    int64_t n = s->f->num_devices > SCHED_MIN_LOOKED_AT ? s->f->num_devices : SCHED_MIN_LOOKED_AT;
    return s->num_preemptors == SCHED_MAX_PREEMPTORS || s->looks >= n * SCHED_MAX_LOOKS;
}

bool preempt_try(struct sched *s, size_t job)
{
    struct want *w = want_table_get(s->wants, s->seats[job].want);
    const struct sched_job *j = &s->v->jobs[job];
    if (!s->v->options->preemption || s->has_leftovers || is_spent(s) ||
        !victim_may_exist(s, job)) {
        return false;
    }
    struct want_try key = {.tenant = j->tenant,
                           .priority = j->priority,
                           .num = j->num_devices,
                           .reclaims = share_within_quota(s, job)};
    bool is_special = victim_is_backfilled(s, job);
    if (!is_special && want_has_tried(w, &key)) {
        return false;
    }
    int64_t max = s->v->tenants[j->tenant].max;
    struct search c = {.s = s, .job = job, .mask = reserve_later(s, job), .reclaims = key.reclaims};
    reserve_possible(s, key.reclaims);
    c.over = max >= 0 ? share_with(s, job) - max : 0;
    if (is_enough_anyway(&c, w)) {
        return false; /* for now */
    }
    int32_t largest = largest_possible(&c, w);
    if (largest >= j->num_devices && search(&c)) {
        return true;
    }
    if (!is_special) {
        key.num = largest < j->num_devices ? largest + 1 : key.num;
        want_tried(w, &key);
    }
    return false;
}
