#include "server/tenants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/sched/sched.h"

struct tenant {
    char *name; /* owned */
    struct tenant_quota quota;
    int64_t held;
    double use;       /* decayed device-seconds, as of as_of_ms */
    int64_t as_of_ms; /* 0 = nothing was held yet */
};

struct undo {
    int32_t i;
    struct tenant before;
};

struct tenants {
    double half_life_s;
    struct tenant *all; /* owned */
    int32_t *by_name;   /* owned; indexes in the order of names */
    int32_t num, cap;
    struct buf undo;            /* struct undo, oldest first */
    struct sched_tenant *sched; /* owned; cap of them */
};

struct tenants *tenants_new(double half_life_h)
{
    struct tenants *t = calloc(1, sizeof *t);
    ASSERT(t);
    t->half_life_s = half_life_h > 0 ? half_life_h * 3600 : 0;
    return t;
}

void tenants_free(struct tenants *t)
{
    if (!t) {
        return;
    }
    for (int32_t i = 0; i < t->num; i++) {
        free(t->all[i].name);
    }
    free(t->all);
    free(t->by_name);
    free(t->sched);
    buf_free(&t->undo);
    free(t);
}

double tenants_half_life_h(const struct tenants *t)
{
    return t->half_life_s / 3600;
}

/* Where name is in by_name, or would be. */
static int32_t slot_of(const struct tenants *t, const char *name)
{
    int32_t lo = 0, hi = t->num;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (strcmp(t->all[t->by_name[mid]].name, name) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

int32_t tenants_find(const struct tenants *t, const char *name)
{
    int32_t slot = slot_of(t, name);
    return slot < t->num && strcmp(t->all[t->by_name[slot]].name, name) == 0 ? t->by_name[slot]
                                                                             : -1;
}

static void grow(struct tenants *t)
{
    t->cap = t->cap ? 2 * t->cap : 16;
    size_t cap = (size_t)t->cap;
    t->all = realloc(t->all, cap * sizeof *t->all);
    t->by_name = realloc(t->by_name, cap * sizeof *t->by_name);
    t->sched = realloc(t->sched, cap * sizeof *t->sched);
    ASSERT(t->all && t->by_name && t->sched);
}

int32_t tenants_add(struct tenants *t, const char *name)
{
    int32_t slot = slot_of(t, name);
    if (slot < t->num && strcmp(t->all[t->by_name[slot]].name, name) == 0) {
        return t->by_name[slot];
    }
    if (t->num == t->cap) {
        grow(t);
    }
    memmove(&t->by_name[slot + 1], &t->by_name[slot], (size_t)(t->num - slot) * sizeof *t->by_name);
    t->by_name[slot] = t->num;
    t->all[t->num] = (struct tenant){.name = strdup(name), .quota = TENANT_QUOTA_NONE};
    ASSERT(t->all[t->num].name);
    return t->num++;
}

/* Before a change of tenant i. */
static struct tenant *touch(struct tenants *t, int32_t i)
{
    ASSERT(i >= 0 && i < t->num);
    const struct undo u = {i, t->all[i]};
    buf_append(&t->undo, &u, sizeof u);
    return &t->all[i];
}

size_t tenants_mark(const struct tenants *t)
{
    return t->undo.len / sizeof(struct undo);
}

void tenants_put_back(struct tenants *t, size_t mark)
{
    const struct undo *list = (const struct undo *)(const void *)t->undo.data;
    for (size_t n = tenants_mark(t); n > mark; n--) {
        t->all[list[n - 1].i] = list[n - 1].before;
    }
    t->undo.len = mark * sizeof(struct undo);
}

void tenants_keep(struct tenants *t)
{
    t->undo.len = 0;
}

void tenants_set(struct tenants *t, int32_t i, const struct tenant_quota *q)
{
    touch(t, i)->quota = *q;
}

const struct tenant_quota *tenants_quota(const struct tenants *t, int32_t i)
{
    return &t->all[i].quota;
}

/* ---- use ---- */

/* What a device that was held for held_s, until ago_s ago, counts now: the integral of the decay.
 */
static double decayed(const struct tenants *t, double held_s, double ago_s)
{
    const double rate = log(2) / t->half_life_s;
    return exp(-rate * ago_s) * -expm1(-rate * held_s) / rate;
}

static double use_at(const struct tenants *t, const struct tenant *a, int64_t now_ms)
{
    if (!(t->half_life_s > 0)) {
        return 0;
    }
    double passed_s = now_ms > a->as_of_ms ? (double)(now_ms - a->as_of_ms) / 1000 : 0;
    return a->use * exp2(-passed_s / t->half_life_s) + (double)a->held * decayed(t, passed_s, 0);
}

static void bring_up(const struct tenants *t, struct tenant *a, int64_t now_ms)
{
    a->use = use_at(t, a, now_ms);
    a->as_of_ms = now_ms > a->as_of_ms ? now_ms : a->as_of_ms;
}

void tenants_hold(struct tenants *t, int32_t i, int64_t devices, int64_t now_ms)
{
    struct tenant *a = touch(t, i);
    bring_up(t, a, now_ms);
    a->held += devices;
    ASSERT(a->held >= 0);
}

int64_t tenants_held(const struct tenants *t, int32_t i)
{
    return t->all[i].held;
}

void tenants_charge(struct tenants *t, int32_t i, int64_t devices, int64_t held_ms, int64_t ago_ms,
                    int64_t now_ms)
{
    struct tenant *a = touch(t, i);
    bring_up(t, a, now_ms);
    if (t->half_life_s > 0 && held_ms > 0 && devices > 0) {
        double ago_s = ago_ms > 0 ? (double)ago_ms / 1000 : 0;
        a->use += (double)devices * decayed(t, (double)held_ms / 1000, ago_s);
    }
}

const struct sched_tenant *tenants_sched(struct tenants *t, int64_t now_ms, int32_t *num)
{
    for (int32_t i = 0; i < t->num; i++) {
        const struct tenant *a = &t->all[i];
        t->sched[i] = (struct sched_tenant){.name = a->name,
                                            .quota = a->quota.devices,
                                            .max = a->quota.max_devices,
                                            .weight = a->quota.weight,
                                            .usage = use_at(t, a, now_ms)};
    }
    *num = t->num;
    return t->sched;
}
