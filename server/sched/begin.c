/* Takes a view in: who holds what, which claims are good, the order of the queue. */
#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

static void make_room(struct sched *s, const struct sched_view *v)
{
    if (v->num_jobs >= s->job_cap) {
        s->job_cap = v->num_jobs + v->num_jobs / 2 + 64;
        s->seats = sched_must(realloc(s->seats, s->job_cap * sizeof *s->seats));
        s->order = sched_must(realloc(s->order, s->job_cap * sizeof *s->order));
    }
    if (v->num_runs >= s->run_cap) {
        s->run_cap = v->num_runs + v->num_runs / 2 + 64;
        s->stops = sched_must(realloc(s->stops, s->run_cap * sizeof *s->stops));
        s->borrowed = sched_must(realloc(s->borrowed, s->run_cap * sizeof *s->borrowed));
        s->victims = sched_must(realloc(s->victims, s->run_cap * sizeof *s->victims));
    }
    if ((size_t)v->num_tenants >= s->tenant_cap) {
        s->tenant_cap = (size_t)v->num_tenants + 64;
        s->held = sched_must(realloc(s->held, s->tenant_cap * sizeof *s->held));
    }
}

static void begin_jobs(struct sched *s)
{
    const struct sched_view *v = s->v;
    int64_t want_bytes = (int64_t)sizeof(struct want) + s->f->num_devices / 8;
    if (want_table_num(s->wants) > SCHED_MAX_WANT_BYTES / want_bytes) {
        want_table_clear(s->wants);
    }
    for (size_t i = 0; i < v->num_jobs; i++) {
        const struct sched_job *j = &v->jobs[i];
        s->seats[i] = (struct seat){
            .hard_end_ms = j->limit_ms > 0 ? sched_add_ms(v->now_ms, j->limit_ms) : SCHED_NEVER,
            .want = want_table_add(s->wants, &j->place),
            .reservation = -1,
            .outcome = OUTCOME_WAITS};
    }
}

static void begin_devices(struct sched *s)
{
    const struct sched_view *v = s->v;
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        s->holder[d] = HOLDER_NONE;
        s->claimant[d] = NO_JOB;
        s->reserved[d] = 0;
    }
    uint64_t *bits[] = {s->covered, s->claimed, s->kept[0], s->kept[1]};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        memset(bits[i], 0, ((size_t)s->f->num_devices / 64 + 1) * sizeof *bits[i]);
    }
    for (size_t i = 0; i < v->num_runs; i++) {
        s->stops[i] = false;
        for (int32_t k = 0; k < device_set_num(v->runs[i].devices); k++) {
            int32_t d = v->runs[i].devices->device[k];
            ASSERT(d >= 0 && d < s->f->num_devices);
            s->holder[d] = (int32_t)i;
        }
    }
}

/* What didn't fit the devices that were free doesn't fit a part of them. */
static void begin_free(struct sched *s)
{
    bool grew = open_map_update(s);
    for (int32_t i = 0; i < want_table_num(s->wants); i++) {
        struct want *w = want_table_get(s->wants, i);
        int32_t num = 0;
        for (int32_t k = 0; !grew && k < w->num_fails; k++) {
            if (w->fails[k].mask == 0) {
                w->fails[num++] = w->fails[k];
            }
        }
        w->num_fails = num;
        w->num_tries = 0;
        w->impossible[0] = w->impossible[1] = INT32_MAX;
        w->leaving_stamp = -1;
        w->is_covered = false;
    }
}

void begin_pass(struct sched *s, const struct sched_view *v)
{
    ASSERT(v->fabric == s->f);
    ASSERT(v->num_jobs < INT32_MAX && v->num_runs < INT32_MAX);
    sched_forget_pass(s);
    s->v = v;
    s->has_borrowed = s->has_coming = s->has_possible = false;
    make_room(s, v);
    begin_jobs(s);
    begin_devices(s);
    order_build(s);
    claim_build(s);
    begin_free(s);
    share_build(s);
    victim_build(s);
}
