#include "server/dependencies.h"

#include <stdio.h>
#include <string.h>

#include "server/job.h"

/* What is known of one. */
struct other {
    JobState state;
    int64_t step, total_steps;
    bool is_final; /* on disk, and nothing can happen to it by itself */
};

static int find_other(struct controller *c, int64_t id, struct other *out, struct error *err)
{
    const struct job *live = controller_job(c, id);
    struct job_row row;
    *out = (struct other){.state = JOB_FAILED};
    if (live) {
        *out = (struct other){live->row.state, live->row.step, live->row.total_steps, false};
        return 0;
    }
    int rc = store_job_get(controller_store(c), id, &row, err);
    if (rc == 1) {
        *out = (struct other){row.state, row.step, row.total_steps, true};
    }
    return rc < 0 ? -1 : 0;
}

static void say_waits(int64_t id, const struct other *o, struct dependency *out)
{
    out->state = DEPENDENCY_WAITS;
    out->id = id;
    if (o->step > 0) {
        snprintf(out->words, sizeof out->words, "waits for job %lld (%s, step %lld of %lld)",
                 (long long)id, job_state_name(o->state), (long long)o->step,
                 (long long)o->total_steps);
    } else {
        snprintf(out->words, sizeof out->words, "waits for job %lld (%s)", (long long)id,
                 job_state_name(o->state));
    }
}

/* Asked once: what has succeeded stays so. Not while its end may be taken back. */
static int look_at(struct controller *c, struct job *j, size_t i, struct other *o,
                   struct error *err)
{
    uint64_t bit = (uint64_t)1 << i;
    ASSERT(i < 64);
    *o = (struct other){.state = JOB_SUCCEEDED};
    if (j->after_met & bit) {
        return 0;
    }
    if (find_other(c, j->spec->after[i], o, err) != 0) {
        return -1;
    }
    if (o->state == JOB_SUCCEEDED) {
        j->after_met |= o->is_final ? bit : 0;
    }
    return 0;
}

int dependencies_look(struct controller *c, struct job *j, struct dependency *out,
                      struct error *err)
{
    *out = (struct dependency){.state = DEPENDENCY_MET};
    size_t num = j->spec ? j->spec->n_after : 0;
    for (size_t i = 0; i < num && out->state == DEPENDENCY_MET; i++) {
        struct other o;
        if (look_at(c, j, i, &o, err) != 0) {
            return -1;
        }
        if (o.state != JOB_SUCCEEDED) {
            say_waits(j->spec->after[i], &o, out);
        }
    }
    return 0;
}

int dependencies_failed(struct controller *c, struct job *j, struct dependency *out,
                        struct error *err)
{
    int64_t ends = controller_bad_ends(c);
    *out = (struct dependency){.state = DEPENDENCY_MET};
    if (!j->spec || !j->spec->n_after || j->after_seen == ends) {
        return 0;
    }
    for (size_t i = 0; i < j->spec->n_after; i++) {
        int64_t id = j->spec->after[i];
        struct other o;
        if (look_at(c, j, i, &o, err) != 0) {
            return -1;
        }
        if (o.state == JOB_FAILED || o.state == JOB_CANCELLED) {
            *out = (struct dependency){.state = DEPENDENCY_FAILED, .id = id};
            snprintf(out->words, sizeof out->words, "job %lld, which it waited for, has %s",
                     (long long)id, o.state == JOB_FAILED ? "failed" : "been cancelled");
            return 0;
        }
    }
    j->after_seen = ends;
    return 0;
}

static int check_one(struct controller *c, const JobSpec *spec, size_t i, struct error *err)
{
    int64_t id = spec->after[i], found;
    char ref[24];
    struct other o;
    for (size_t k = 0; k < i; k++) {
        if (spec->after[k] == id) {
            return error_set(err, ERR_INVALID_ARGUMENT, "after.%zu: job %lld is named twice", i,
                             (long long)id);
        }
    }
    snprintf(ref, sizeof ref, "%lld", (long long)id);
    int rc = store_job_find(controller_store(c), ref, spec->tenant, &found, err);
    if (rc < 0) {
        return -1;
    }
    if (rc == 0 || found != id) {
        return error_set(err, ERR_INVALID_ARGUMENT, "after.%zu: there is no job %lld", i,
                         (long long)id);
    }
    if (find_other(c, id, &o, err) != 0) {
        return -1;
    }
    if (o.state == JOB_FAILED || o.state == JOB_CANCELLED) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "after.%zu: job %lld has %s; resume it first", i, (long long)id,
                         o.state == JOB_FAILED ? "failed" : "been cancelled");
    }
    return 0;
}

int dependencies_check(struct controller *c, const JobSpec *spec, struct error *err)
{
    for (size_t i = 0; i < spec->n_after; i++) {
        if (check_one(c, spec, i, err) != 0) {
            return -1;
        }
    }
    return 0;
}
