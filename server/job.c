#include "server/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "server/msg.h"

#define BIT(state) (1u << (state))

/* Row: from; bits: to. What is not here can't happen. */
static const unsigned moves[JOB_CANCELLED + 1] = {
    [JOB_QUEUED] =
        BIT(JOB_STARTING) | BIT(JOB_HELD) | BIT(JOB_PAUSED) | BIT(JOB_CANCELLED) | BIT(JOB_FAILED),
    [JOB_HELD] = BIT(JOB_QUEUED) | BIT(JOB_CANCELLED) | BIT(JOB_FAILED),
    [JOB_STARTING] = BIT(JOB_RUNNING) | BIT(JOB_STOPPING) | BIT(JOB_QUEUED) | BIT(JOB_FAILED),
    [JOB_RUNNING] = BIT(JOB_STOPPING) | BIT(JOB_QUEUED) | BIT(JOB_SUCCEEDED) | BIT(JOB_FAILED),
    /* To itself: pausing, then cancelled after all. To the queue: it stopped for another job. */
    [JOB_STOPPING] = BIT(JOB_STOPPING) | BIT(JOB_QUEUED) | BIT(JOB_HELD) | BIT(JOB_PAUSED) |
                     BIT(JOB_SUCCEEDED) | BIT(JOB_FAILED) | BIT(JOB_CANCELLED),
    [JOB_PAUSED] = BIT(JOB_QUEUED) | BIT(JOB_CANCELLED) | BIT(JOB_FAILED),
    [JOB_SUCCEEDED] = 0,
    [JOB_FAILED] = BIT(JOB_QUEUED),
    [JOB_CANCELLED] = BIT(JOB_QUEUED),
};

bool job_may_move(JobState from, JobState to)
{
    return from >= JOB_QUEUED && from <= JOB_CANCELLED && to >= JOB_QUEUED && to <= JOB_CANCELLED &&
           (moves[from] & BIT(to)) != 0;
}

bool job_state_is_end(JobState state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

const char *job_state_name(JobState state)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&tandem__v1__job_state__descriptor, (int)state);
    return v ? v->name + strlen("JOB_") : "?";
}

void job_set_devices(Job *j, const char *devices)
{
    while (*devices) {
        size_t len = strcspn(devices, ",");
        char *name = NULL;
        msg_printf(&name, "%.*s", (int)len, devices);
        msg_push(&j->device_names, &j->n_device_names, name);
        devices += len + (devices[len] == ',');
    }
}

bool job_dir(char *out, size_t size, const char *data_dir, int64_t id)
{
    int n = snprintf(out, size, "%s/jobs/%lld", data_dir, (long long)id);
    return n > 0 && (size_t)n < size;
}

void job_pace_add(struct job_pace *p, double took_ms)
{
    const double over_ms = 10000;
    double before = p->num_steps * over_ms / (over_ms + took_ms);
    p->step_ms = (p->step_ms * before + took_ms) / (before + 1);
    p->num_steps = before + 1;
}

static void set_curve(Job *j, const struct job_row *r)
{
    if (!isnan(r->loss)) {
        MSG_SET(j, loss, r->loss);
    }
    bool waits = r->state == JOB_QUEUED || r->state == JOB_HELD;
    if (!isnan(r->tokens_per_s) && !waits) {
        MSG_SET(j, tokens_per_s, r->tokens_per_s);
    }
    if (!isnan(r->mfu) && !waits) {
        MSG_SET(j, mfu, r->mfu);
    }
    if (r->state == JOB_RUNNING && !isnan(r->step_ms)) {
        MSG_SET(j, eta_s, (double)(r->total_steps - r->step) * r->step_ms / 1000);
    }
}

static void set_times(Job *j, const struct job_row *r)
{
    MSG_SET(j, created_us, r->created_us);
    if (r->started_us) {
        MSG_SET(j, started_us, r->started_us);
    }
    if (r->ended_us) {
        MSG_SET(j, ended_us, r->ended_us);
    }
}

Job *job_message(const struct job_row *r, const char *data_dir, const JobSpec *spec, bool with_spec)
{
    Job *j = msg_new(&job__descriptor);
    MSG_SET(j, id, r->id);
    msg_text(&j->name, r->name);
    MSG_SET(j, state, r->state);
    msg_text(&j->cause, r->cause);
    msg_text(&j->message, r->message);
    MSG_SET(j, attempt, r->attempt.number);
    MSG_SET(j, step, r->step);
    MSG_SET(j, total_steps, r->total_steps);
    msg_text(&j->tenant, r->tenant);
    msg_text(&j->user, r->user);
    MSG_SET(j, priority, r->priority);
    MSG_SET(j, devices, r->devices);
    MSG_SET(j, restarts, r->restarts);
    MSG_SET(j, evictions, r->evictions);
    set_times(j, r);
    set_curve(j, r);
    char dir[4096];
    if (job_dir(dir, sizeof dir, data_dir, r->id)) {
        msg_text(&j->job_dir, dir);
        if (*r->export_dir) {
            msg_printf(&j->export_dir, "%s/%s", dir, r->export_dir);
        }
    }
    for (size_t i = 0; spec && i < spec->n_tags; i++) {
        char *tag = NULL;
        msg_printf(&tag, "%s", spec->tags[i]);
        msg_push(&j->tags, &j->n_tags, tag);
    }
    if (spec && with_spec) {
        j->spec = (JobSpec *)text_clone(&spec->base);
    }
    return j;
}
