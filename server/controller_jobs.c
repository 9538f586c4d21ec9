/* Jobs in memory: found by number or name, brought back from their rows, added, touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/spec_check.h"
#include "proto/text.h"
#include "server/controller_private.h"
#include "server/msg.h"
#include "server/rights.h"

static size_t job_slot(const struct controller *c, int64_t id)
{
    size_t lo = 0, hi = c->num_jobs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->jobs[mid]->row.id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

struct job *controller_job(struct controller *c, int64_t id)
{
    size_t i = job_slot(c, id);
    return i < c->num_jobs && c->jobs[i]->row.id == id ? c->jobs[i] : NULL;
}

static struct job *insert_job(struct controller *c, const struct job_row *row)
{
    struct job *j = calloc(1, sizeof *j);
    ASSERT(j);
    j->row = *row;
    j->tenant = tenants_add(c->tenants, row->tenant);
    j->since_ms = j->moved_ms = j->queued_ms = c->now_ms;
    j->mem_bytes = -1;
    if (c->num_jobs == c->cap_jobs) {
        c->cap_jobs = c->cap_jobs ? 2 * c->cap_jobs : 64;
        c->jobs = realloc(c->jobs, c->cap_jobs * sizeof(struct job *));
        ASSERT(c->jobs);
    }
    size_t i = job_slot(c, row->id);
    memmove(&c->jobs[i + 1], &c->jobs[i], (c->num_jobs - i) * sizeof(struct job *));
    c->jobs[i] = j;
    c->num_jobs++;
    return j;
}

void controller_free_job(struct job *j)
{
    msg_free(j->spec);
    msg_free(j->facts);
    held_set_free(&j->devices);
    held_set_free(&j->claim);
    if (j->worker) {
        call_unref(j->worker);
    }
    free(j);
}

static void list_active(struct controller *c, struct job *j, bool active)
{
    if (active && !j->active) {
        buf_append(&c->active, &j, sizeof(struct job *));
    } else if (!active && j->active) {
        struct job **list = (struct job **)(void *)c->active.data;
        size_t num = c->active.len / sizeof(struct job *), i = 0;
        while (list[i] != j) {
            i++;
        }
        list[i] = list[num - 1];
        c->active.len -= sizeof(struct job *);
    }
    j->active = active;
}

void controller_set_active(struct controller *c, struct job *j)
{
    const struct attempt_row *a = &j->row.attempt;
    list_active(c, j, (a->number && a->condition != ATTEMPT_GONE) || j->not_before_ms);
}

size_t controller_num_active(const struct controller *c)
{
    return c->active.len / sizeof(struct job *);
}

struct job *controller_active_at(struct controller *c, size_t i)
{
    return ((struct job **)(void *)c->active.data)[i];
}

void controller_remove(struct controller *c, struct job *j)
{
    list_active(c, j, false);
    size_t i = job_slot(c, j->row.id);
    ASSERT(i < c->num_jobs && c->jobs[i] == j);
    memmove(&c->jobs[i], &c->jobs[i + 1], (c->num_jobs - i - 1) * sizeof(struct job *));
    c->num_jobs--;
    controller_free_job(j);
}

/* An attempt that an earlier controller made holds devices. */
static void take_over_devices(struct controller *c, struct job *j)
{
    int64_t held_ms = (controller_wall_us(c) - j->row.attempt.created_us) / 1000;
    j->began_ms = c->now_ms;
    j->began_before = true;
    /* Until it tells of a step: else nobody would know when those that wait may start. */
    if (j->row.step_ms > 0 && j->row.step_ms < 1e12) {
        job_pace_add(&j->pace, j->row.step_ms);
    }
    tenants_charge(c->tenants, j->tenant, j->row.devices, held_ms, 0, c->now_ms);
    tenants_hold(c->tenants, j->tenant, j->row.devices, c->now_ms);
}

/* How many of them are not in the cluster (any more). */
static int32_t parse_devices(struct controller *c, const struct job *j, const char *text,
                             struct held_set *out)
{
    struct device_set *s;
    int32_t num_unknown;
    struct error why = {0};
    if (fabric_parse_set(c->options.topology->fabric, text, &s, &num_unknown, &why) != 0) {
        log_error("job %lld: its devices can't be read: %s", (long long)j->row.id, why.text);
        return 0;
    }
    if (num_unknown) {
        log_warn("job %lld: %d of its devices are not in the cluster any more: %.200s",
                 (long long)j->row.id, num_unknown, text);
    }
    held_set_put(out, s);
    held_set_settle(out);
    return num_unknown;
}

/* What it holds, and what is kept for it. */
static int load_devices(struct controller *c, struct job *j, struct error *err)
{
    const struct attempt_row *a = &j->row.attempt;
    struct buf text = {0};
    int rc = store_job_claim(c->options.store, j->row.id, &text, err);
    if (rc >= 0) {
        j->claim_stale = parse_devices(c, j, text.data, &j->claim) > 0;
    }
    if (rc >= 0 && a->number && a->condition != ATTEMPT_GONE) {
        rc = store_attempt_devices(c->options.store, j->row.id, a->number, &text, err);
        if (rc >= 0) {
            parse_devices(c, j, text.data, &j->devices);
        }
    }
    buf_free(&text);
    return rc < 0 ? -1 : 0;
}

/* How much of a time limit and of a wait is over by now is reckoned by the clock on the wall, which
 * may have jumped: never less than nothing. */
static void set_times(struct controller *c, struct job *j)
{
    int64_t now_us = controller_wall_us(c);
    int64_t ran_us = now_us - j->row.attempt.created_us, waited_us = now_us - j->row.queued_us;
    j->attempt_ms = c->now_ms - (j->row.attempt.number && ran_us > 0 ? ran_us / 1000 : 0);
    j->queued_ms = c->now_ms - (j->row.queued_us && waited_us > 0 ? waited_us / 1000 : 0);
    j->saved_ms = j->attempt_ms;
}

/* A spec of an older version lacks the parts that came since: they get their defaults, as at a
 * submit. One that this version refuses stays as it is, and is refused when it is to start. */
static void renew_spec(struct job *j)
{
    struct error why;
    JobSpec *spec = (JobSpec *)text_clone(&j->spec->base);
    JobSpec *drop = spec_check(spec, &why) == 0 ? j->spec : spec;
    j->spec = drop == spec ? j->spec : spec;
    msg_free(drop);
}

int controller_load(struct controller *c, int64_t id, struct job **out, struct error *err)
{
    struct job_row row;
    int rc = store_job_get(c->options.store, id, &row, err);
    if (rc <= 0) {
        return rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "there is no job %lld", (long long)id);
    }
    struct job *j = insert_job(c, &row);
    if (load_devices(c, j, err) != 0) {
        controller_remove(c, j);
        return -1;
    }
    struct error why = {0};
    if (store_job_spec(c->options.store, id, &j->spec, &why) != 0 ||
        store_job_facts(c->options.store, id, &j->facts, &why) != 0) {
        if (why.code != ERR_DATA_LOSS) {
            controller_remove(c, j);
            *err = why;
            return -1;
        }
        log_error("job %lld is quarantined: %s", (long long)id, why.text);
        controller_touch(c, j);
        snprintf(j->row.quarantine, sizeof j->row.quarantine, "%.150s", why.text);
    }
    if (j->spec) {
        renew_spec(j);
    }
    set_times(c, j);
    int64_t wait_us = row.not_before_us - controller_wall_us(c);
    if (row.state == JOB_QUEUED && wait_us > 0 && j->spec && j->spec->retry) {
        int64_t max_us = (int64_t)(j->spec->retry->max_backoff_s * 1e6);
        j->not_before_ms = c->now_ms + (wait_us < max_us ? wait_us : max_us) / 1000;
    }
    if (row.attempt.number && row.attempt.condition != ATTEMPT_GONE) {
        take_over_devices(c, j);
    }
    controller_set_active(c, j);
    *out = j;
    return 0;
}

int controller_find(struct controller *c, const char *ref, const struct caller *who,
                    struct job **out, struct error *err)
{
    int64_t id;
    if (store_job_find(c->options.store, ref, rights_tenant(who), &id, err) != 1) {
        return -1;
    }
    *out = controller_job(c, id);
    if (!*out && controller_load(c, id, out, err) != 0) {
        return -1;
    }
    controller_touch(c, *out); /* so that the batch's end lets it go again */
    return 0;
}

int controller_add(struct controller *c, struct job_row *row, JobSpec *spec, ProbeReply *facts,
                   struct job **out, struct error *err)
{
    size_t spec_len = job_spec__get_packed_size(spec);
    size_t facts_len = probe_reply__get_packed_size(facts);
    uint8_t *packed = malloc(spec_len + facts_len + 1);
    ASSERT(packed);
    job_spec__pack(spec, packed);
    probe_reply__pack(facts, packed + spec_len);
    int rc = c->num_jobs >= CONTROLLER_JOBS_MAX
                 ? error_set(err, ERR_RESOURCE_EXHAUSTED,
                             "the queue is full (%d jobs); try again later", CONTROLLER_JOBS_MAX)
                 : store_job_insert(c->options.store, row, packed, spec_len, packed + spec_len,
                                    facts_len, err);
    free(packed);
    if (rc != 0) {
        msg_free(spec);
        msg_free(facts);
        return -1;
    }
    struct job *j = insert_job(c, row);
    j->spec = spec;
    j->facts = facts;
    controller_touch(c, j);
    j->created = true;
    *out = j;
    return 0;
}

void controller_set_devices(struct controller *c, struct job *j, struct device_set *s)
{
    controller_touch(c, j);
    held_set_put(&j->devices, s);
}

void controller_set_claim(struct controller *c, struct job *j, struct device_set *s)
{
    controller_touch(c, j);
    held_set_put(&j->claim, s);
}

void controller_touch(struct controller *c, struct job *j)
{
    if (!j->touched) {
        j->touched = true;
        j->before = j->row;
        j->since_before_ms = j->since_ms;
        j->moved_before_ms = j->moved_ms;
        j->attempt_before_ms = j->attempt_ms;
        j->queued_before_ms = j->queued_ms;
        j->not_before_before_ms = j->not_before_ms;
        j->next_kill_before_ms = j->next_kill_ms;
        j->began_was_ms = j->began_ms;
        j->began_before_was = j->began_before;
        memcpy(j->stuck_before, j->stuck, sizeof j->stuck);
        buf_append(&c->touched, &j, sizeof(struct job *));
    }
}
