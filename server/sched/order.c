#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Ascending by rank: the higher the priority the lower. Equal ones stay as they are: by id. */
struct key {
    uint64_t rank;
    size_t job;
};

/* Doubles as whole numbers in the same order, turned round. */
static uint64_t rank_of(double priority)
{
    uint64_t bits;
    priority += 0.0; /* one zero only */
    memcpy(&bits, &priority, sizeof bits);
    return bits >> 63 ? bits : ~(bits | (uint64_t)1 << 63);
}

static int compare_ids(const void *a, const void *b, void *v)
{
    const struct key *x = a, *y = b;
    const struct sched_job *jobs = ((const struct sched_view *)v)->jobs;
    int64_t i = jobs[x->job].id, k = jobs[y->job].id;
    return i != k ? (i < k ? -1 : 1) : (x->job > y->job) - (x->job < y->job);
}

/* Byte by byte from the last one; bytes in which all are the same are passed over. */
static struct key *sort(struct key *keys, struct key *other, size_t num)
{
    for (int shift = 0; shift < 64; shift += 8) {
        size_t begin[256] = {0}, sum = 0;
        for (size_t i = 0; i < num; i++) {
            begin[keys[i].rank >> shift & 255]++;
        }
        if (num == 0 || begin[keys[0].rank >> shift & 255] == num) {
            continue;
        }
        for (int i = 0; i < 256; i++) {
            size_t here = begin[i];
            begin[i] = sum;
            sum += here;
        }
        for (size_t i = 0; i < num; i++) {
            other[begin[keys[i].rank >> shift & 255]++] = keys[i];
        }
        struct key *swap = keys;
        keys = other;
        other = swap;
    }
    return keys;
}

void order_build(struct sched *s)
{
    const struct sched_view *v = s->v;
    struct key *keys = sched_must(malloc((2 * v->num_jobs + 1) * sizeof *keys));
    double total = usage_total(v);
    bool by_id = true;
    for (size_t i = 0; i < v->num_jobs; i++) {
        ASSERT(v->jobs[i].tenant >= 0 && v->jobs[i].tenant < v->num_tenants);
        s->seats[i].priority = priority_of(v, &v->jobs[i], total);
        keys[i] = (struct key){.rank = rank_of(s->seats[i].priority), .job = i};
        by_id = by_id && (i == 0 || v->jobs[i - 1].id < v->jobs[i].id);
    }
    if (!by_id) {
        qsort_r(keys, v->num_jobs, sizeof *keys, compare_ids, (void *)v);
    }
    const struct key *sorted = sort(keys, keys + v->num_jobs, v->num_jobs);
    for (size_t i = 0; i < v->num_jobs; i++) {
        s->order[i] = sorted[i].job;
        s->seats[sorted[i].job].place = (int32_t)i;
    }
    free(keys);
}
