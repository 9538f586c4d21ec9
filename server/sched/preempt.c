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
    size_t *runs; /* candidates, then those chosen of them */
    size_t num;
    int64_t over; /* devices of its own tenant that have to go: it would be over its max */
};

static bool is_known(const struct sched *s, size_t job, uint64_t mask)
{
    const struct sched_job *j = &s->v->jobs[job];
    for (int32_t i = 0; i < s->num_tries; i++) {
        const struct sched_try *t = &s->tries[i];
        if (t->want == s->seats[job].want && t->tenant == j->tenant && t->priority == j->priority &&
            j->num_devices >= t->num && (t->mask & ~mask) == 0) {
            return !victim_is_backfilled(s, job);
        }
    }
    return false;
}

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
    room_start(&s->room, want_table_get(s->wants, s->seats[c->job].want));
    room_add_all(&s->room, sched_map(s, c->mask)->bits, INT32_MAX);
    for (size_t i = 0; i < s->v->num_runs; i++) {
        if (reserve_leaves(s, i)) {
            add(c, i);
        }
    }
}

/* Of the candidates those that are needed. False: all together aren't enough. */
static bool choose(struct search *c)
{
    size_t num = 0;
    for (size_t i = 0; i < c->num && !is_enough(c); i++) {
        if (add(c, c->runs[i])) {
            c->runs[num++] = c->runs[i];
        } else {
            drop(c, c->runs[i]);
        }
    }
    if (!is_enough(c)) {
        return false;
    }
    /* An earlier one may be of no use now: the most valuable goes free first. */
    for (size_t i = num; i-- > 0;) {
        drop(c, c->runs[i]);
        if (is_enough(c)) {
            num--;
            memmove(&c->runs[i], &c->runs[i + 1], (num - i) * sizeof *c->runs);
        } else {
            add(c, c->runs[i]);
        }
    }
    c->num = num;
    return num > 0;
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
    free_map_set(s->whatif, sched_map(s, c->mask)->map);
    for (size_t i = 0; i < s->v->num_runs; i++) {
        if (reserve_leaves(s, i)) {
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
        s->claimant[d] = (int32_t)c->job;
        sched_take(s, d);
        seat->claimed += holder < 0 || s->v->runs[holder].tenant != j->tenant;
    }
    for (size_t i = 0; i < c->num; i++) {
        s->stops[c->runs[i]] = true;
        sched_decide(s, SCHED_STOP, c->job)->run = c->runs[i];
    }
    s->held[j->tenant] += seat->claimed;
    seat->outcome = OUTCOME_CLAIMS;
    s->num_preemptors++;
}

static bool search(struct search *c)
{
    struct sched *s = c->s;
    const struct sched_job *j = &s->v->jobs[c->job];
    int64_t max = s->v->tenants[j->tenant].max;
    c->over = max >= 0 ? share_with(s, c->job) - max : 0;
    c->num = victim_list(s, c->job, c->runs);
    add_free(c);
    if (is_enough(c)) {
        return false; /* those who leave anyway are enough */
    }
    if (choose(c) && place(c)) {
        return true;
    }
    s->tries[s->num_tries++] = (struct sched_try){.want = s->seats[c->job].want,
                                                  .tenant = j->tenant,
                                                  .priority = j->priority,
                                                  .num = j->num_devices,
                                                  .mask = c->mask};
    return false;
}

bool preempt_try(struct sched *s, size_t job, uint64_t mask)
{
    if (!s->v->options->preemption || s->num_preemptors == SCHED_MAX_PREEMPTORS ||
        s->num_tries == SCHED_MAX_TRIES || !victim_may_exist(s, job) || is_known(s, job, mask)) {
        return false;
    }
    struct search c = {.s = s, .job = job, .mask = mask};
    c.runs = sched_must(malloc((s->v->num_runs + 1) * sizeof *c.runs));
    bool found = search(&c);
    if (found) {
        claim(&c);
    }
    free(c.runs);
    return found;
}
