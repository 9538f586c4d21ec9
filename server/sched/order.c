#include <math.h>
#include <stdlib.h>

#include "server/sched/sched_private.h"

#define HOUR_MS 3600000.0

static double usage_share(const struct sched_tenant *t)
{
    double usage = t->usage > 0 && isfinite(t->usage) ? t->usage : 0;
    return t->weight > 0 && isfinite(t->weight) ? usage / t->weight : usage;
}

static double usage_total(const struct sched_view *v)
{
    double total = 0;
    for (int32_t i = 0; i < v->num_tenants; i++) {
        total += usage_share(&v->tenants[i]);
    }
    return total;
}

static double priority_of(const struct sched_view *v, const struct sched_job *j, double total)
{
    const struct sched_options *o = v->options;
    double waited_h = ((double)v->now_ms - (double)j->waits_since_ms) / HOUR_MS;
    double aged = waited_h > 0 ? o->aging_per_h * waited_h : 0;
    if (!(aged < o->aging_max)) {
        aged = o->aging_max;
    }
    double used = total > 0 ? usage_share(&v->tenants[j->tenant]) / total : 0;
    return j->priority + aged - o->fair_share * used;
}

double sched_priority(const struct sched_view *v, size_t job)
{
    return priority_of(v, &v->jobs[job], usage_total(v));
}

struct key {
    double priority;
    int64_t id;
    size_t job;
};

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->priority != y->priority) {
        return x->priority > y->priority ? -1 : 1;
    }
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return (x->job > y->job) - (x->job < y->job);
}

void order_build(struct sched *s)
{
    const struct sched_view *v = s->v;
    struct key *keys = sched_must(malloc((v->num_jobs + 1) * sizeof *keys));
    double total = usage_total(v);
    for (size_t i = 0; i < v->num_jobs; i++) {
        ASSERT(v->jobs[i].tenant >= 0 && v->jobs[i].tenant < v->num_tenants);
        double priority = priority_of(v, &v->jobs[i], total);
        keys[i] = (struct key){.priority = priority, .id = v->jobs[i].id, .job = i};
    }
    qsort(keys, v->num_jobs, sizeof *keys, compare);
    for (size_t i = 0; i < v->num_jobs; i++) {
        s->order[i] = keys[i].job;
        s->seats[keys[i].job].place = (int32_t)i;
        s->seats[keys[i].job].priority = keys[i].priority;
    }
    free(keys);
}
