#include "server/usage.h"

#include <stdlib.h>

#include "base/buf.h"
#include "server/account.h"

#define SECOND_US 1000000

/* An attempt, cut to the time. */
struct part {
    int64_t job;
    int64_t device_us;
    int64_t wait_us; /* -1 = it didn't begin in the time */
    bool borrowed, evicted;
};

struct usage {
    int64_t from_us, to_us, now_us;
    struct buf parts; /* struct part */
    struct buf waits; /* int64_t; scratch */
};

void usage_add(struct usage_time *t, int64_t us)
{
    t->us += us % SECOND_US;
    t->s += us / SECOND_US + t->us / SECOND_US;
    t->us %= SECOND_US;
}

double usage_seconds(const struct usage_time *t)
{
    return (double)t->s + (double)t->us / SECOND_US;
}

int64_t usage_device_us(const struct usage_row *r, int64_t now_us)
{
    return r->gone_us ? r->device_us : account_device_us(r->devices, now_us - r->created_us);
}

struct usage *usage_new(int64_t from_us, int64_t to_us, int64_t now_us)
{
    struct usage *u = calloc(1, sizeof *u);
    ASSERT(u);
    u->from_us = from_us;
    u->to_us = to_us;
    u->now_us = now_us;
    return u;
}

void usage_free(struct usage *u)
{
    if (u) {
        buf_free(&u->parts);
        buf_free(&u->waits);
        free(u);
    }
}

/* Of its device-time what lies in the time. */
static int64_t cut(const struct usage *u, const struct usage_row *r)
{
    int64_t end_us = r->gone_us ? r->gone_us : u->now_us;
    if (r->created_us >= u->from_us && end_us <= u->to_us) {
        return usage_device_us(r, u->now_us);
    }
    int64_t from_us = r->created_us > u->from_us ? r->created_us : u->from_us;
    int64_t to_us = end_us < u->to_us ? end_us : u->to_us;
    return account_device_us(r->devices, to_us - from_us);
}

bool usage_take(struct usage *u, const struct usage_row *r)
{
    bool began = r->created_us >= u->from_us && r->created_us < u->to_us;
    struct part p = {.job = r->job,
                     .device_us = cut(u, r),
                     .wait_us = began ? (r->wait_us > 0 ? r->wait_us : 0) : -1,
                     .borrowed = r->borrowed,
                     /* It gave way at its end. */
                     .evicted = r->evicted && r->gone_us >= u->from_us && r->gone_us &&
                                r->gone_us < u->to_us};
    if (u->parts.len / sizeof p >= USAGE_ATTEMPTS_MAX) {
        return false;
    }
    buf_append(&u->parts, &p, sizeof p);
    return true;
}

static int by_job(const void *a, const void *b)
{
    int64_t x = ((const struct part *)a)->job, y = ((const struct part *)b)->job;
    return (x > y) - (x < y);
}

/* The k-th smallest of v[num], which is put into another order (Hoare's quickselect). */
static int64_t select_wait(int64_t *v, size_t num, size_t k)
{
    size_t lo = 0, hi = num - 1;
    while (lo < hi) {
        int64_t pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot) {
                i++;
            }
            while (v[j] > pivot) {
                j--;
            }
            if (i >= j) {
                break;
            }
            int64_t t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (k <= j) {
            hi = j;
        } else {
            lo = j + 1;
        }
    }
    return v[k];
}

/* Mean, and the value that 95 of 100 don't exceed. */
static void sum_waits(struct usage *u, const struct part *p, size_t num, struct usage_sum *out)
{
    struct usage_time all = {0};
    u->waits.len = 0;
    for (size_t i = 0; i < num; i++) {
        if (p[i].wait_us >= 0) {
            buf_append(&u->waits, &p[i].wait_us, sizeof p[i].wait_us);
            usage_add(&all, p[i].wait_us);
        }
    }
    size_t n = u->waits.len / sizeof(int64_t);
    if (n > 0) {
        int64_t *waits = (int64_t *)(void *)u->waits.data;
        out->wait_mean_s = usage_seconds(&all) / (double)n;
        out->wait_p95_s = (double)select_wait(waits, n, (95 * n + 99) / 100 - 1) / SECOND_US;
    }
}

/* p: by job. */
static void sum_up(struct usage *u, const struct part *p, size_t num, struct usage_sum *out)
{
    *out = (struct usage_sum){.attempts = (int64_t)num};
    for (size_t i = 0; i < num; i++) {
        usage_add(&out->devices, p[i].device_us);
        usage_add(&out->borrowed, p[i].borrowed ? p[i].device_us : 0);
        out->evictions += p[i].evicted;
        out->jobs += i == 0 || p[i].job != p[i - 1].job;
    }
    sum_waits(u, p, num, out);
}

static struct part *sorted(struct usage *u, size_t *num)
{
    struct part *p = (struct part *)(void *)u->parts.data;
    *num = u->parts.len / sizeof *p;
    bool is_sorted = true;
    for (size_t i = 1; i < *num && is_sorted; i++) {
        is_sorted = p[i - 1].job <= p[i].job;
    }
    if (!is_sorted) {
        qsort(p, *num, sizeof *p, by_job);
    }
    return p;
}

void usage_sum(struct usage *u, struct usage_sum *out)
{
    size_t num;
    const struct part *p = sorted(u, &num);
    sum_up(u, p, num, out);
    u->parts.len = 0;
}

void usage_by_job(struct usage *u, usage_job_fn fn, void *arg)
{
    size_t num;
    const struct part *p = sorted(u, &num);
    for (size_t i = 0, end; i < num; i = end) {
        struct usage_sum sum;
        for (end = i + 1; end < num && p[end].job == p[i].job; end++) {
        }
        sum_up(u, p + i, end - i, &sum);
        fn(arg, p[i].job, &sum);
    }
    u->parts.len = 0;
}
