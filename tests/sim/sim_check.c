#include "tests/sim/sim_check.h"
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"
#include "tests/sim/sim_stream.h"

/* Longer than a word is on its way. */
#define STOP_HEARD_US 8000000

/* ---- events ---- */

static void check_promises(struct sim *s, struct sim_job *j, JobState from, JobState to)
{
    if (j->is_cancelled && !(from == JOB_STOPPING && to == JOB_CANCELLED)) {
        sim_fail(s, "%s goes from %s to %s, though its cancel was acknowledged", j->name,
                 job_state_name(from), job_state_name(to));
    }
    if (j->is_paused && (to == JOB_QUEUED || to == JOB_STARTING || to == JOB_RUNNING)) {
        sim_fail(s, "%s goes from %s to %s, though its pause was acknowledged", j->name,
                 job_state_name(from), job_state_name(to));
    }
    if (j->is_held && (to == JOB_QUEUED || to == JOB_STARTING)) {
        sim_fail(s, "%s goes from %s to %s, though it is held", j->name, job_state_name(from),
                 job_state_name(to));
    }
    if (job_state_is_end(from) && !(to == JOB_QUEUED && j->num_resumes > 0)) {
        sim_fail(s, "%s goes from %s to %s, and nobody asked for it", j->name, job_state_name(from),
                 job_state_name(to));
    }
    if (to == JOB_SUCCEEDED && !j->has_finished) {
        sim_fail(s, "%s succeeds, though no gang of it reached the end", j->name);
    }
    if (to == JOB_CANCELLED && !j->may_be_cancelled) {
        sim_fail(s, "%s is cancelled, and nobody asked for it", j->name);
    }
}

static void check_failure(struct sim *s, const struct sim_job *j, const char *cause)
{
    bool spent = strcmp(cause, "restarts-spent") == 0;
    if (strcmp(cause, "damaged") == 0 && j->is_rotten) {
        return;
    }
    if (strcmp(cause, "dependency") == 0) {
        sim_check_dependency(s, j);
        return;
    }
    if (strcmp(cause, "time-limit") == 0 && j->limit_s) {
        s->seen.limited++;
        return;
    }
    if (spent ? j->num_failures <= j->max_restarts : !j->failed_for_good) {
        sim_fail(s, "%s failed (%s) after %d failures of %d that it may have", j->name, cause,
                 j->num_failures, j->max_restarts);
    }
}

/* A restart that was counted waits 1, 2, 4, 8 s; as long as the controller lives, by its own
 * clock. */
static void note_backoff(struct sim *s, struct sim_job *j, const struct job *memory)
{
    bool waits = memory && memory->not_before_ms;
    j->backoff_until_ms = waits ? sim_server_mono_ms(s) + 1000 : 0;
    j->backoff_generation = s->server->generation;
}

static void take_event(struct sim *s, const Event *e, bool delivered)
{
    struct sim_job *j = sim_client_job(s, e->job_id);
    if (e->id <= s->server->last_event) {
        sim_fail(s, "event %lld comes after event %lld", (long long)e->id,
                 (long long)s->server->last_event);
    }
    s->server->last_event = e->id;
    if (strcmp(e->kind, "submitted") == 0) {
        if (j->state) {
            sim_fail(s, "%s is submitted twice", j->name);
        }
        j->state = j->held_new ? JOB_HELD : JOB_QUEUED;
        return;
    }
    if (!e->has_to) {
        return;
    }
    sim_trace(s->now_us, "job %lld (%s): %s -> %s, %s: %s", (long long)e->job_id, j->name,
              job_state_name(e->from), job_state_name(e->to), e->cause ? e->cause : "",
              e->message ? e->message : "");
    if (e->from != j->state || !job_may_move(e->from, e->to)) {
        sim_fail(s, "%s goes from %s to %s, but it was %s", j->name, job_state_name(e->from),
                 job_state_name(e->to), job_state_name(j->state));
    }
    check_promises(s, j, e->from, e->to);
    j->state = e->to;
    sim_check_stop(s, j, e, delivered);
    if (e->to == JOB_STARTING) {
        sim_check_start(s, j);
    }
    if (e->to == JOB_FAILED) {
        check_failure(s, j, e->cause);
    }
    if (e->to == JOB_STARTING && j->backoff_generation == s->server->generation &&
        sim_server_mono_ms(s) < j->backoff_until_ms) {
        sim_fail(s, "%s starts again before its backoff is over", j->name);
    }
    if (delivered && e->to == JOB_QUEUED) {
        note_backoff(s, j, controller_job(s->server->app.controller, e->job_id));
    }
}

void sim_check_feed(struct sim *s, const struct feed_mail *m)
{
    if (m->event) {
        take_event(s, m->event, true);
    }
}

/* ---- a boot ---- */

static bool take_old_event(void *arg, const Event *e)
{
    take_event(arg, e, false);
    return true;
}

static void check_job_is_there(struct sim *s, const struct sim_job *j)
{
    struct job_row row;
    struct error err = {0};
    if (store_job_get(controller_store(s->server->app.controller), j->id, &row, &err) != 1 ||
        strcmp(row.name, j->name) != 0) {
        sim_fail(s, "%s was acknowledged as job %lld and is lost", j->name, (long long)j->id);
    } else if (row.state != j->state) {
        sim_fail(s, "%s is %s by its row and %s by its events", j->name, job_state_name(row.state),
                 job_state_name(j->state));
    }
}

static void check_acks(struct sim *s)
{
    struct controller *c = s->server->app.controller;
    for (size_t i = 0; i < s->num_nodes; i++) {
        const struct sim_node *n = s->nodes[i];
        const struct job *j = n->alive ? controller_job(c, n->job) : NULL;
        if (j && j->row.attempt.number == n->attempt && j->row.attempt.acked_seq < n->acked) {
            sim_fail(s, "%s: report %lld of attempt %d was acknowledged and is lost",
                     n->truth->name, (long long)n->acked, n->attempt);
        }
    }
}

static void check_boot(struct sim *s)
{
    struct store *store = controller_store(s->server->app.controller);
    struct error err = {0};
    int64_t last;
    if (store_event_last(store, &last, &err) != 0 ||
        store_event_list(store, 0, NULL, s->server->last_event, 1000000, take_old_event, s, &err) !=
            0) {
        sim_fail(s, "after a restart: %s", err.text);
        return;
    }
    if (last < s->server->last_event) {
        sim_fail(s, "event %lld was told and is lost", (long long)s->server->last_event);
    }
    for (int32_t i = 0; i < s->num_jobs; i++) {
        if (s->jobs[i].id) {
            check_job_is_there(s, &s->jobs[i]);
        }
    }
    check_acks(s);
    sim_check_figures(s);
}

void sim_check_boot(struct sim *s)
{
    struct sim_disk_faults *f = sim_disk_faults(s->disk), had = *f;
    *f = (struct sim_disk_faults){0};
    check_boot(s);
    *f = had;
}

/* ---- the state in memory ---- */

void sim_check_server(struct sim *s)
{
    struct controller *c = s->server->app.controller;
    for (size_t i = 0; i < controller_num_jobs(c); i++) {
        const struct job *j = controller_job_at(c, i);
        struct sim_job *truth = sim_client_job_named(s, j->row.name);
        const struct attempt_row *a = &j->row.attempt;
        if (a->number < truth->attempt) {
            sim_fail(s, "%s goes back from attempt %d to %d", truth->name, truth->attempt,
                     a->number);
        }
        truth->attempt = a->number;
        if (j->row.state != truth->state) {
            sim_fail(s, "%s is %s in memory and %s by its events", truth->name,
                     job_state_name(j->row.state), job_state_name(truth->state));
        }
        bool stops = truth->is_cancelled && j->row.state == JOB_STOPPING;
        if (stops && j->row.target != JOB_CANCELLED) {
            sim_fail(s, "%s stops for %s, though it was cancelled", truth->name,
                     job_state_name((JobState)j->row.target));
        }
        if (j->not_before_ms - controller_now_ms(c) > SIM_BACKOFF_MAX_MS) {
            sim_fail(s, "%s waits longer than its longest backoff", truth->name);
        }
    }
    sim_check_devices(s);
}

/* ---- gangs ---- */

void sim_check_gang(struct sim *s, const struct sim_node *n)
{
    for (size_t i = 0; i < s->num_nodes; i++) {
        const struct sim_node *other = s->nodes[i];
        if (other == n) {
            continue;
        }
        if (sim_node_holds(other) && (other->devices & n->devices)) {
            sim_fail(s, "job %lld attempt %d starts on devices of job %lld attempt %d, which live",
                     (long long)n->job, n->attempt, (long long)other->job, other->attempt);
        }
        if (other->job == n->job && other->finished && other->ended && !other->abandoned &&
            n->truth->num_resumes == 0 && !other->lost_from) {
            sim_fail(s, "job %lld attempt %d starts, though attempt %d reached the end",
                     (long long)n->job, n->attempt, other->attempt);
        }
    }
    struct sim_job *j = n->truth;
    if (j->result_acked && j->num_resumes == 0) {
        sim_fail(s, "job %lld attempt %d starts, though the result is known", (long long)n->job,
                 n->attempt);
    }
    if (n->attempt <= j->last_gang) {
        sim_fail(s, "job %lld attempt %d starts after attempt %d", (long long)n->job, n->attempt,
                 j->last_gang);
    }
    j->last_gang = n->attempt;
}

void sim_check_resume(struct sim *s, const struct sim_node *n)
{
    for (int32_t i = 0; i < n->truth->num_checkpoints; i++) {
        const struct sim_checkpoint *k = &n->truth->checkpoints[i];
        if (k->is_told && !k->damaged && k->step > n->step) {
            sim_fail(s, "job %lld attempt %d starts at step %lld, though %s was acknowledged",
                     (long long)n->job, n->attempt, (long long)n->step, k->dir);
        }
    }
}

void sim_check_step(struct sim *s, const struct sim_node *n)
{
    const struct sim_job *j = n->truth;
    int64_t since_us = n->heard_us > j->paused_us ? n->heard_us : j->paused_us;
    /* One may take long to notice that its stream is dead. */
    bool is_heard = n->stream && !n->stream->broken && !n->stream->over && n->heard_us;
    if (j->is_paused && n->stop_at < 0 && is_heard && s->now_us - since_us > STOP_HEARD_US) {
        sim_fail(s, "job %lld attempt %d trains on, though its pause was acknowledged",
                 (long long)n->job, n->attempt);
    }
}
