/* The clock of the month, and what happens to its jobs. */
#include <math.h>
#include <stdlib.h>

#include "tests/bench/month.h"

#define STOP_MS 30000 /* a step's end, a checkpoint, the processes' end */
#define HALF_LIFE_MS (7 * 24 * 3600000.0)

static bool before(const struct month_event *a, const struct month_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void push(struct month *m, int64_t at_ms, int32_t job, uint32_t course)
{
    if (m->num_events == m->event_cap) {
        m->event_cap = m->event_cap ? 2 * m->event_cap : 1024;
        m->heap = realloc(m->heap, m->event_cap * sizeof *m->heap);
        ASSERT(m->heap);
    }
    struct month_event e = {at_ms, m->num_pushed++, job, course};
    size_t i = m->num_events++;
    for (; i > 0 && before(&e, &m->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        m->heap[i] = m->heap[(i - 1) / 2];
    }
    m->heap[i] = e;
}

static struct month_event pop(struct month *m)
{
    struct month_event top = m->heap[0], last = m->heap[--m->num_events];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < m->num_events; i = k) {
        k += k + 1 < m->num_events && before(&m->heap[k + 1], &m->heap[k]);
        if (!before(&m->heap[k], &last)) {
            break;
        }
        m->heap[i] = m->heap[k];
    }
    m->heap[i] = last;
    return top;
}

static void drop(int32_t *list, int32_t *num, int32_t job)
{
    int32_t i = 0;
    while (list[i] != job) {
        i++;
    }
    for (--*num; i < *num; i++) {
        list[i] = list[i + 1];
    }
}

/* The queue stays in the order of submission: who was evicted keeps its age. */
static void enqueue(struct month *m, int32_t job)
{
    struct month_job *j = &m->jobs[job];
    j->state = M_QUEUED;
    j->queued_ms = m->now_ms;
    int32_t i = m->num_queue++;
    for (; i > 0 && m->queue[i - 1] > job; i--) {
        m->queue[i] = m->queue[i - 1];
    }
    m->queue[i] = job;
}

void month_start(struct month *m, int32_t job, const int32_t *devices)
{
    struct month_job *j = &m->jobs[job];
    drop(m->queue, &m->num_queue, job);
    m->running[m->num_running++] = job;
    m->used[j->tenant] += j->num_devices;
    for (int32_t i = 0; i < j->num_devices; i++) {
        ASSERT(free_map_take(m->free, devices[i]));
    }
    j->set = device_set_new(devices, j->num_devices);
    device_set_free(j->claim);
    j->claim = NULL;
    j->state = M_RUNNING;
    j->waited_ms += m->now_ms - j->queued_ms;
    j->started_ms = m->now_ms;
    j->yields_to = 0;
    j->ends_ms = m->now_ms + m->start_ms + j->work_ms - j->done_ms;
    push(m, j->ends_ms, job, ++j->course);
}

void month_stop(struct month *m, int32_t job, int64_t yields_to)
{
    struct month_job *j = &m->jobs[job];
    if (j->ends_ms > m->now_ms + STOP_MS) {
        int64_t ran = m->now_ms - j->started_ms - m->start_ms;
        j->done_ms += ran > 0 ? ran : 0;
        m->lost_s +=
            (double)(STOP_MS + (ran > 0 ? m->start_ms : m->start_ms + ran)) / 1000 * j->num_devices;
        push(m, m->now_ms + STOP_MS, job, ++j->course);
    }
    j->state = M_STOPPING;
    j->yields_to = yields_to;
    j->evictions++;
    m->num_evictions++;
}

static void leave(struct month *m, int32_t job)
{
    struct month_job *j = &m->jobs[job];
    drop(m->running, &m->num_running, job);
    m->used[j->tenant] -= j->num_devices;
    for (int32_t i = 0; i < j->num_devices; i++) {
        free_map_give(m->free, j->set->device[i]);
    }
    device_set_free(j->set);
    j->set = NULL;
    if (j->state == M_STOPPING && j->ends_ms > m->now_ms) {
        enqueue(m, job);
    } else {
        j->state = M_ENDED;
    }
}

/* Devices that a tenant's jobs wait for and that it could have within its quota. */
static int64_t owed_to(const struct month *m, int32_t tenant)
{
    int64_t left = m->due[tenant] - m->used[tenant], owed = 0;
    for (int32_t i = 0; i < m->num_queue && owed < left; i++) {
        const struct month_job *j = &m->jobs[m->queue[i]];
        owed += j->tenant == tenant && owed + j->num_devices <= left ? j->num_devices : 0;
    }
    return owed;
}

static void advance(struct month *m, int64_t to_ms)
{
    double s = (double)(to_ms - m->now_ms) / 1000;
    bool counts = to_ms <= m->jobs[m->num_jobs - 1].submit_ms;
    double decay = exp2(-1000 * s / HALF_LIFE_MS);
    for (int32_t t = 0; t < MONTH_TENANTS; t++) {
        struct sched_tenant *x = &m->tenants[t];
        x->usage = x->usage * decay + (double)m->used[t] * s;
        if (counts) {
            m->busy_s += (double)m->used[t] * s;
            m->owed_s[t] += (double)owed_to(m, t) * s;
        }
    }
    m->now_ms = to_ms;
}

void month_run(struct month *m, month_policy *policy)
{
    for (int32_t i = 0; i < m->num_jobs; i++) {
        push(m, m->jobs[i].submit_ms, i, 0);
    }
    while (m->num_events || m->next_ms != SCHED_NEVER) {
        int64_t next = m->num_events ? m->heap[0].at_ms : SCHED_NEVER;
        next = m->next_ms < next ? m->next_ms : next;
        advance(m, next > m->now_ms ? next : m->now_ms);
        bool changed = m->next_ms <= m->now_ms;
        m->next_ms = SCHED_NEVER;
        while (m->num_events && m->heap[0].at_ms <= m->now_ms) {
            struct month_event e = pop(m);
            if (e.course == 0) {
                enqueue(m, e.job);
                changed = true;
            } else if (e.course == m->jobs[e.job].course) {
                leave(m, e.job);
                changed = true;
            }
        }
        if (changed) {
            policy(m);
            m->num_passes++;
        }
    }
}
