/* Carries out what the scheduler decides: starts, stops, claims. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "server/attempts_private.h"
#include "server/attempts_view.h"
#include "server/dependencies.h"

/* A job whose dependency failed fails, too; those that wait for it come later in the list. */
static int fail_dependents(struct controller *c, struct error *err)
{
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        struct job *j = controller_job_at(c, i);
        struct dependency dependency;
        if (j->row.state != JOB_QUEUED || !j->spec || !j->spec->n_after) {
            continue;
        }
        if (dependencies_failed(c, j, &dependency, err) != 0) {
            return -1;
        }
        if (dependency.state == DEPENDENCY_FAILED &&
            controller_move(c, j, JOB_FAILED, "dependency", dependency.words, "scheduler", err) !=
                0) {
            return -1;
        }
    }
    return 0;
}

/* How a job of one tenant is called in the events of another's. */
static const char *shown(const struct job *j, const struct job *to, char *out, size_t size)
{
    if (strcmp(j->row.tenant, to->row.tenant) != 0) {
        return "a job of another tenant";
    }
    char words[16];
    snprintf(out, size, "job %lld (priority %s)", (long long)j->row.id,
             attempts_priority_words(j->row.priority, words));
    return out;
}

static int start(struct controller *c, const struct attempts_view *v,
                 const struct sched_decision *d, bool *again, struct error *err)
{
    struct job *j = v->job_of[d->job];
    if (attempts_start(c, j, d->devices, v->jobs[d->job].num_devices, d->backfills, d->borrowed,
                       err) != 0) {
        return -1;
    }
    if (j->row.state != JOB_STARTING) {
        *again = true; /* there is no plan on these devices: they are another's */
        return 0;
    }
    const struct job *before = d->backfills ? controller_job(c, d->backfills) : NULL;
    char text[64];
    return before ? controller_event(c, j, "note", "scheduler", 0, err,
                                     "started in front of %s, which waits for %d devices: it can't "
                                     "delay it",
                                     shown(before, j, text, sizeof text), before->row.devices)
                  : 0;
}

static int stop(struct controller *c, const struct attempts_view *v, const struct sched_decision *d,
                struct error *err)
{
    struct job *victim = v->run_of[d->run];
    const struct job *j = v->job_of[d->job];
    char text[64], words[200];
    int32_t num = device_set_num(victim->devices.now);
    controller_touch(c, victim);
    victim->row.attempt.yields_to = j->row.id;
    snprintf(words, sizeof words, "gives its %d device%s to %s", num, num == 1 ? "" : "s",
             shown(j, victim, text, sizeof text));
    struct supervisor_event e = {.kind = SUPERVISE_PREEMPT, .message = words};
    return attempts_apply(c, victim, &e, "scheduler", err);
}

/* Said when it gets a claim; not each time that more is added. */
static int claim(struct controller *c, struct job *j, const struct device_set *set,
                 struct error *err)
{
    bool is_new = !j->claim.now;
    controller_set_claim(c, j, device_set_copy(set));
    if (!is_new) {
        return 0;
    }
    struct buf names = {0};
    fabric_print_set(controller_topology(c)->fabric, set, &names);
    int rc = controller_event(c, j, "note", "scheduler", 0, err,
                              "waits: %.300s %s kept for it until all that it needs is free",
                              names.data ? names.data : "", set->num == 1 ? "is" : "are");
    buf_free(&names);
    return rc;
}

static int carry_out(struct controller *c, const struct attempts_view *v,
                     const struct sched_decision *d, bool *again, struct error *err)
{
    switch (d->kind) {
    case SCHED_START:
        return start(c, v, d, again, err);
    case SCHED_STOP:
        return stop(c, v, d, err);
    case SCHED_CLAIM:
        if (v->job_of[d->job]->row.state == JOB_QUEUED) {
            return claim(c, v->job_of[d->job], d->set, err);
        }
        return 0;
    case SCHED_UNCLAIM:
        if (v->job_of[d->job]->claim.now) {
            controller_set_claim(c, v->job_of[d->job], NULL);
        }
        return 0;
    }
    return 0;
}

/* ---- who waits from now on, and what for ---- */

/* More than so many in one batch find out by asking. */
#define ARRIVALS_MAX 8

struct arrival {
    struct job *job;
    char words[512];
};

static bool is_arrival(const struct job *j)
{
    return j->touched && j->row.state == JOB_QUEUED &&
           (j->created || j->before.state != JOB_QUEUED);
}

/* Events are read by all of the job's tenant, and by no other. */
static void hide_others(const struct attempts_view *v, int32_t tenant)
{
    for (size_t i = 0; i < v->view.num_jobs; i++) {
        v->jobs[i].hidden = v->jobs[i].tenant != tenant;
    }
    for (size_t i = 0; i < v->view.num_runs; i++) {
        v->runs[i].hidden = v->runs[i].tenant != tenant;
    }
}

static bool explain(struct controller *c, const struct attempts_view *v, size_t i,
                    struct arrival *out)
{
    out->job = v->job_of[i];
    struct dependency dependency;
    struct sched_reason reason;
    if (v->jobs[i].ready) {
        hide_others(v, v->jobs[i].tenant);
        sched_explain(controller_sched(c), &v->view, i, &reason);
        snprintf(out->words, sizeof out->words, "%s", reason.words);
        return true;
    }
    /* Backoffs and ends of attempts have been told. */
    bool waits = dependencies_look(c, out->job, &dependency, &(struct error){0}) == 0 &&
                 dependency.state == DEPENDENCY_WAITS;
    snprintf(out->words, sizeof out->words, "%s", waits ? dependency.words : "");
    return waits;
}

/* As the pass that was just made saw it. */
static size_t explain_arrivals(struct controller *c, const struct attempts_view *v,
                               struct arrival out[ARRIVALS_MAX])
{
    size_t num = 0, all = 0;
    for (size_t i = 0; i < v->view.num_jobs; i++) {
        all += is_arrival(v->job_of[i]);
    }
    for (size_t i = 0; i < v->view.num_jobs && all > 0 && all <= ARRIVALS_MAX; i++) {
        num += is_arrival(v->job_of[i]) && explain(c, v, i, &out[num]);
    }
    return num;
}

static int tell_arrivals(struct controller *c, const struct arrival *list, size_t num,
                         struct error *err)
{
    for (size_t i = 0; i < num; i++) {
        struct job *j = list[i].job;
        const char *words = list[i].words;
        if (j->row.state == JOB_QUEUED && !j->claim.now &&
            controller_event(c, j, "note", "scheduler", 0, err, "%s%s",
                             strncmp(words, "waits", 5) == 0 ? "" : "waits: ", words) != 0) {
            return -1;
        }
    }
    return 0;
}

int attempts_schedule(struct controller *c, struct attempts_pass *out, struct error *err)
{
    struct attempts_view v;
    const struct sched_decision *decisions;
    struct sched *sched = controller_sched(c);
    *out = (struct attempts_pass){.next_ms = SCHED_NEVER};
    if (fail_dependents(c, err) != 0 || attempts_view_make(c, NULL, &v, err) != 0) {
        return -1;
    }
    size_t num = sched_pass(sched, &v.view, &decisions);
    struct arrival arrivals[ARRIVALS_MAX];
    size_t num_arrivals = explain_arrivals(c, &v, arrivals);
    int rc = 0;
    for (size_t i = 0; i < num && rc == 0; i++) {
        rc = carry_out(c, &v, &decisions[i], &out->again, err);
    }
    rc = rc == 0 ? tell_arrivals(c, arrivals, num_arrivals, err) : rc;
    out->next_ms = sched_next_ms(sched);
    if (v.view.num_jobs && out->next_ms > v.view.now_ms + ATTEMPTS_AGING_MS) {
        out->next_ms = v.view.now_ms + ATTEMPTS_AGING_MS;
    }
    attempts_view_free(&v);
    return rc;
}
