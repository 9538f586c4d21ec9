#include "tests/unit/sched_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/fabric_case.h"

static struct sched_case *make(struct fabric *f)
{
    struct sched_case *c = calloc(1, sizeof *c);
    ASSERT(c);
    struct error err;
    c->f = f;
    ASSERT(f->num_devices <= (int32_t)(sizeof c->drained / sizeof *c->drained));
    ASSERT(sched_new(&c->s, f, &err) == 0);
    c->options = (struct sched_options){.preemption = true,
                                        .backfill = true,
                                        .max_evictions = 3,
                                        .min_run_ms = 60000,
                                        .grace_ms = 120000};
    c->now_ms = 1000000;
    case_tenant(c, "pool", -1, -1);
    return c;
}

struct sched_case *case_new(int num_nodes)
{
    return make(fabric_case_tree(num_nodes, 2, 4, "h100"));
}

struct sched_case *case_new_of(const char *text)
{
    return make(fabric_case(text));
}

static void free_job(struct sched_job *j)
{
    device_set_free((struct device_set *)j->claim);
}

static void free_run(struct sched_run *r)
{
    device_set_free((struct device_set *)r->devices);
}

void case_free(struct sched_case *c)
{
    for (size_t i = 0; i < c->num_jobs; i++) {
        free_job(&c->jobs[i]);
    }
    for (size_t i = 0; i < c->num_runs; i++) {
        free_run(&c->runs[i]);
    }
    sched_free(c->s);
    fabric_free(c->f);
    free(c);
}

int32_t case_tenant(struct sched_case *c, const char *name, int64_t quota, int64_t max)
{
    c->tenants[c->num_tenants] =
        (struct sched_tenant){.name = name, .quota = quota, .max = max, .weight = 1};
    return c->num_tenants++;
}

struct sched_job *case_job(struct sched_case *c, int64_t id, int32_t priority, int32_t data,
                           int32_t tensor)
{
    ASSERT(c->num_jobs < CASE_MAX);
    struct sched_job *j = &c->jobs[c->num_jobs++];
    *j = (struct sched_job){.id = id,
                            .priority = priority,
                            .num_devices = data * tensor,
                            .place = {.data = data,
                                      .pipeline = 1,
                                      .context = 1,
                                      .tensor = tensor,
                                      .expert = 1,
                                      .type = "any"},
                            .waits_since_ms = c->now_ms,
                            .ready = true};
    return j;
}

struct device_set *case_range(int32_t first, int32_t num)
{
    int32_t devices[512];
    for (int32_t i = 0; i < num; i++) {
        devices[i] = first + i;
    }
    return device_set_new(devices, num);
}

struct sched_run *case_run(struct sched_case *c, int64_t id, int32_t priority, int32_t first,
                           int32_t num)
{
    ASSERT(c->num_runs < CASE_MAX);
    struct sched_run *r = &c->runs[c->num_runs++];
    *r = (struct sched_run){.id = id,
                            .priority = priority,
                            .devices = case_range(first, num),
                            .started_ms = c->now_ms - 600000,
                            .end_ms = SCHED_NEVER,
                            .hard_end_ms = SCHED_NEVER,
                            .can_stop = true};
    return r;
}

struct sched_view case_view(const struct sched_case *c)
{
    return (struct sched_view){.fabric = c->f,
                               .drained = c->drained,
                               .options = &c->options,
                               .tenants = c->tenants,
                               .num_tenants = c->num_tenants,
                               .jobs = c->jobs,
                               .num_jobs = c->num_jobs,
                               .runs = c->runs,
                               .num_runs = c->num_runs,
                               .now_ms = c->now_ms};
}

/* Whatever is decided has to hold for any pass: each device once, none that is taken. */
static void check_decisions(const struct sched_case *c)
{
    int32_t taken[512] = {0};
    for (size_t i = 0; i < c->num_runs; i++) {
        for (int32_t k = 0; k < device_set_num(c->runs[i].devices); k++) {
            taken[c->runs[i].devices->device[k]]++;
        }
    }
    for (size_t i = 0; i < c->num_decisions; i++) {
        const struct sched_decision *d = &c->decisions[i];
        for (int32_t k = 0; d->kind == SCHED_START && k < c->jobs[d->job].num_devices; k++) {
            assert_int_equal(taken[d->devices[k]]++, 0);
            assert_false(c->drained[d->devices[k]]);
            assert_true(device_set_has(d->set, d->devices[k]));
        }
        if (d->kind == SCHED_CLAIM) {
            assert_int_equal(device_set_num(d->set), c->jobs[d->job].num_devices);
        }
    }
}

size_t case_pass(struct sched_case *c)
{
    struct sched_view v = case_view(c);
    c->num_decisions = sched_pass(c->s, &v, &c->decisions);
    check_decisions(c);
    return c->num_decisions;
}

static const struct sched_decision *find(const struct sched_case *c, enum sched_kind kind,
                                         int64_t id)
{
    for (size_t i = 0; i < c->num_decisions; i++) {
        const struct sched_decision *d = &c->decisions[i];
        int64_t of = kind == SCHED_STOP ? c->runs[d->run].id : c->jobs[d->job].id;
        if (d->kind == kind && of == id) {
            return d;
        }
    }
    return NULL;
}

const struct sched_decision *case_start(const struct sched_case *c, int64_t id)
{
    return find(c, SCHED_START, id);
}

const struct sched_decision *case_claim(const struct sched_case *c, int64_t id)
{
    return find(c, SCHED_CLAIM, id);
}

const struct sched_decision *case_unclaim(const struct sched_case *c, int64_t id)
{
    return find(c, SCHED_UNCLAIM, id);
}

const struct sched_decision *case_stop(const struct sched_case *c, int64_t id)
{
    return find(c, SCHED_STOP, id);
}

size_t case_count(const struct sched_case *c, enum sched_kind kind)
{
    size_t num = 0;
    for (size_t i = 0; i < c->num_decisions; i++) {
        num += c->decisions[i].kind == kind;
    }
    return num;
}

static void start(struct sched_case *c, const struct sched_decision *d)
{
    const struct sched_job *j = &c->jobs[d->job];
    ASSERT(c->num_runs < CASE_MAX);
    c->runs[c->num_runs++] =
        (struct sched_run){.id = j->id,
                           .tenant = j->tenant,
                           .priority = j->priority,
                           .devices = device_set_copy(d->set),
                           .started_ms = c->now_ms,
                           .end_ms = SCHED_NEVER,
                           .hard_end_ms = j->limit_ms ? c->now_ms + j->limit_ms : SCHED_NEVER,
                           .evictions = j->evictions,
                           .can_stop = true,
                           .backfills = d->backfills,
                           .hidden = j->hidden};
}

static void set_claim(struct sched_job *j, const struct device_set *set)
{
    device_set_free((struct device_set *)j->claim);
    j->claim = device_set_copy(set);
}

void case_apply(struct sched_case *c)
{
    for (size_t i = 0; i < c->num_decisions; i++) {
        const struct sched_decision *d = &c->decisions[i];
        struct sched_job *j = &c->jobs[d->job];
        switch (d->kind) {
        case SCHED_START:
            start(c, d);
            j->num_devices = -1;
            break;
        case SCHED_STOP:
            c->runs[d->run].stopping = true;
            c->runs[d->run].yields_to = j->id;
            break;
        case SCHED_CLAIM:
            set_claim(j, d->set);
            break;
        case SCHED_UNCLAIM:
            set_claim(j, NULL);
            break;
        }
    }
    size_t num = 0;
    for (size_t i = 0; i < c->num_jobs; i++) {
        if (c->jobs[i].num_devices < 0) {
            free_job(&c->jobs[i]);
        } else {
            c->jobs[num++] = c->jobs[i];
        }
    }
    c->num_jobs = num;
    c->num_decisions = 0;
}

struct sched_job *case_find_job(struct sched_case *c, int64_t id)
{
    for (size_t i = 0; i < c->num_jobs; i++) {
        if (c->jobs[i].id == id) {
            return &c->jobs[i];
        }
    }
    return NULL;
}

struct sched_run *case_find_run(struct sched_case *c, int64_t id)
{
    for (size_t i = 0; i < c->num_runs; i++) {
        if (c->runs[i].id == id) {
            return &c->runs[i];
        }
    }
    return NULL;
}

void case_gone(struct sched_case *c, int64_t id, bool requeue)
{
    struct sched_run *r = case_find_run(c, id);
    ASSERT(r);
    if (requeue) {
        struct sched_job *j = case_job(c, id, r->priority, device_set_num(r->devices), 1);
        j->tenant = r->tenant;
        j->evictions = r->evictions + 1;
        j->waits_since_ms = r->started_ms;
    }
    free_run(r);
    *r = c->runs[--c->num_runs];
}

const char *case_why(struct sched_case *c, int64_t id, struct sched_reason *out)
{
    struct sched_view v = case_view(c);
    struct sched_job *j = case_find_job(c, id);
    ASSERT(j);
    sched_why(&v, (size_t)(j - c->jobs), out);
    return out->words;
}
