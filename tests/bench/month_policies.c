#include <stdlib.h>

#include "tests/bench/month.h"

/* ---- plain ones: the same places as ours, chosen one by one ---- */

static bool start_if_it_fits(struct month *m, int32_t job)
{
    struct month_job *j = &m->jobs[job];
    if (j->num_devices > free_map_num(m->free)) {
        return false;
    }
    int32_t *devices = calloc((size_t)j->num_devices, sizeof *devices);
    ASSERT(devices);
    bool fits = place_find(m->free, &j->place, devices, NULL, NULL) == PLACE_OK;
    if (fits) {
        month_start(m, job, devices);
    }
    free(devices);
    return fits;
}

void month_fifo(struct month *m)
{
    while (m->num_queue && start_if_it_fits(m, m->queue[0])) {
    }
}

static int64_t expected_end(const struct month *m, const struct month_job *j)
{
    int64_t guess =
        j->started_ms + m->start_ms + (int64_t)((double)(j->work_ms - j->done_ms) * j->guess);
    return guess > m->now_ms ? guess : m->now_ms + 60000;
}

struct coming {
    int64_t end_ms;
    int32_t num;
};

static int by_end(const void *a, const void *b)
{
    const struct coming *x = a, *y = b;
    return (x->end_ms > y->end_ms) - (x->end_ms < y->end_ms);
}

/* When there are enough devices for job, and how many more than enough. */
static int64_t shadow(const struct month *m, int32_t job, int32_t *extra)
{
    struct coming *c = calloc((size_t)m->num_running + 1, sizeof *c);
    ASSERT(c);
    for (int32_t i = 0; i < m->num_running; i++) {
        const struct month_job *j = &m->jobs[m->running[i]];
        c[i] = (struct coming){expected_end(m, j), j->num_devices};
    }
    qsort(c, (size_t)m->num_running, sizeof *c, by_end);
    int32_t num = free_map_num(m->free), i = 0;
    int64_t at = m->now_ms;
    for (; i < m->num_running && num < m->jobs[job].num_devices; i++) {
        num += c[i].num;
        at = c[i].end_ms;
    }
    *extra = num - m->jobs[job].num_devices;
    free(c);
    return at;
}

void month_easy(struct month *m)
{
    month_fifo(m);
    if (!m->num_queue) {
        return;
    }
    int32_t extra;
    int64_t at = shadow(m, m->queue[0], &extra);
    for (int32_t i = 1; i < m->num_queue && free_map_num(m->free) > 0;) {
        int32_t job = m->queue[i];
        const struct month_job *j = &m->jobs[job];
        bool ends = j->limit_ms && m->now_ms + j->limit_ms <= at;
        if ((ends || j->num_devices <= extra) && start_if_it_fits(m, job)) {
            extra -= ends ? 0 : j->num_devices;
            m->num_backfills++;
        } else {
            i++;
        }
    }
}

/* ---- ours ---- */

static struct sched_run run_of(const struct month *m, int32_t job)
{
    const struct month_job *j = &m->jobs[job];
    int64_t hard = j->limit_ms ? j->started_ms + j->limit_ms : SCHED_NEVER;
    int64_t end = j->state == M_STOPPING ? m->now_ms + 60000 : expected_end(m, j);
    bool has_begun = m->now_ms >= j->started_ms + m->start_ms;
    return (struct sched_run){.id = job + 1,
                              .tenant = j->tenant,
                              .priority = m->flat ? 500 : j->priority,
                              .devices = j->set,
                              .started_ms = j->started_ms,
                              .end_ms = end < hard ? end : hard,
                              .hard_end_ms = hard,
                              .lost_ms = (m->now_ms - j->started_ms) % 1800000,
                              .evictions = j->evictions,
                              .can_stop = j->state == M_RUNNING && has_begun,
                              .stopping = j->state == M_STOPPING,
                              .yields_to = j->yields_to,
                              .backfills = j->backfills};
}

static struct sched_job queued(const struct month *m, int32_t job)
{
    const struct month_job *j = &m->jobs[job];
    return (struct sched_job){.id = job + 1,
                              .tenant = j->tenant,
                              .priority = m->flat ? 500 : j->priority,
                              .num_devices = j->num_devices,
                              .place = j->place,
                              .waits_since_ms = j->submit_ms,
                              .limit_ms = j->limit_ms,
                              .evictions = j->evictions,
                              .ready = true,
                              .claim = j->claim};
}

static void carry_out(struct month *m, const struct sched_decision *d, int32_t job, int32_t run)
{
    struct month_job *j = &m->jobs[job];
    switch (d->kind) {
    case SCHED_START:
        j->backfills = d->backfills;
        m->num_backfills += d->backfills != 0;
        month_start(m, job, d->devices);
        break;
    case SCHED_STOP:
        month_stop(m, run, job + 1);
        break;
    case SCHED_CLAIM:
        device_set_free(j->claim);
        j->claim = device_set_copy(d->set);
        break;
    case SCHED_UNCLAIM:
        device_set_free(j->claim);
        j->claim = NULL;
        break;
    }
}

void month_ours(struct month *m)
{
    if (!m->sched) {
        struct error err = {0};
        ASSERT(sched_new(&m->sched, m->fabric, &err) == 0);
    }
    int32_t num_jobs = m->num_queue, num_runs = m->num_running;
    struct sched_job *jobs = calloc((size_t)num_jobs + 1, sizeof *jobs);
    struct sched_run *runs = calloc((size_t)num_runs + 1, sizeof *runs);
    int32_t *ids = calloc((size_t)(num_jobs + num_runs) + 1, sizeof *ids);
    ASSERT(jobs && runs && ids);
    for (int32_t i = 0; i < num_jobs; i++) {
        ids[i] = m->queue[i];
        jobs[i] = queued(m, ids[i]);
    }
    for (int32_t i = 0; i < num_runs; i++) {
        ids[num_jobs + i] = m->running[i];
        runs[i] = run_of(m, m->running[i]);
    }
    struct sched_view v = {.fabric = m->fabric,
                           .options = &m->options,
                           .tenants = m->tenants,
                           .num_tenants = MONTH_TENANTS,
                           .jobs = jobs,
                           .num_jobs = (size_t)num_jobs,
                           .runs = runs,
                           .num_runs = (size_t)num_runs,
                           .now_ms = m->now_ms};
    const struct sched_decision *d;
    size_t num = sched_pass(m->sched, &v, &d);
    for (size_t i = 0; i < num; i++) {
        carry_out(m, &d[i], ids[d[i].job],
                  d[i].kind == SCHED_STOP ? ids[num_jobs + (int32_t)d[i].run] : 0);
    }
    int64_t next = sched_next_ms(m->sched);
    m->next_ms = next > m->now_ms ? next : SCHED_NEVER;
    free(jobs);
    free(runs);
    free(ids);
}
