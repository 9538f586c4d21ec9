#include "server/job_use.h"

#include "base/buf.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/usage.h"

struct use {
    struct usage_time devices;
    struct buf rows; /* struct usage_row */
    int64_t now_us;
    bool keeps_rows;
};

static bool take_row(void *arg, const struct usage_row *r)
{
    struct use *u = arg;
    usage_add(&u->devices, usage_device_us(r, u->now_us));
    if (u->keeps_rows) {
        buf_append(&u->rows, r, sizeof *r);
    }
    return true;
}

static int add_attempt(struct store *s, const struct usage_row *r, int64_t now_us, Job *out,
                       struct error *err)
{
    struct buf devices = {0};
    if (store_attempt_devices(s, r->job, r->number, &devices, err) < 0) {
        buf_free(&devices);
        return -1;
    }
    struct usage_time t = {0}, wait = {0};
    usage_add(&t, usage_device_us(r, now_us));
    usage_add(&wait, r->wait_us);
    AttemptInfo *a = msg_new(&attempt_info__descriptor);
    MSG_SET(a, number, r->number);
    msg_text(&a->devices, devices.data ? devices.data : "");
    MSG_SET(a, num_devices, r->devices);
    MSG_SET(a, started_us, r->created_us);
    MSG_SET(a, ended_us, r->gone_us);
    MSG_SET(a, device_seconds, usage_seconds(&t));
    MSG_SET(a, start_step, r->start_step);
    MSG_SET(a, wait_s, usage_seconds(&wait));
    MSG_SET(a, borrowed, r->borrowed);
    MSG_SET(a, evicted, r->evicted);
    msg_push(&out->attempts, &out->n_attempts, a);
    buf_free(&devices);
    return 0;
}

static void add_axes(const Plan *plan, Job *out)
{
    static const char *const axes[] = {"data", "tensor", "pipeline", "context", "expert"};
    static const char *const links[] = {NULL, "domain", "node", "leaf", "tree", "far"};
    for (size_t i = 0; i < plan->n_groups; i++) {
        const AxisGroup *g = plan->groups[i];
        JobAxis *a = msg_new(&job_axis__descriptor);
        if ((size_t)g->axis < sizeof axes / sizeof *axes) {
            msg_text(&a->axis, axes[g->axis]);
        }
        if ((size_t)g->worst < sizeof links / sizeof *links && links[g->worst]) {
            msg_text(&a->worst, links[g->worst]);
        }
        MSG_SET(a, size, g->size);
        msg_push(&out->axes, &out->n_axes, a);
    }
}

static void add_names(const Plan *plan, Job *out)
{
    for (size_t i = 0; i < plan->n_placement; i++) {
        const RankPlacement *p = plan->placement[i];
        char *name;
        msg_printf(&name, "%s:%d", p->node ? p->node : "", p->device);
        msg_push(&out->device_names, &out->n_device_names, name);
    }
}

/* Without its plan (it is damaged) by the names that were taken, not by rank. */
static void add_placement(struct store *s, const struct job_row *row, Job *out)
{
    Plan *plan;
    struct buf devices = {0};
    if (!row->attempt.number || row->attempt.condition == ATTEMPT_GONE) {
        return;
    }
    if (store_attempt_plan(s, row->id, row->attempt.number, &plan, NULL) == 0) {
        add_axes(plan, out);
        add_names(plan, out);
        msg_free(plan);
    } else if (store_attempt_devices(s, row->id, row->attempt.number, &devices, NULL) == 1) {
        job_set_devices(out, devices.data);
    }
    buf_free(&devices);
}

int job_use_add(struct store *s, const struct job_row *row, int64_t now_us, bool with_attempts,
                Job *out, struct error *err)
{
    struct use u = {.now_us = now_us, .keeps_rows = with_attempts};
    int rc = store_usage_of_job(s, row->id, take_row, &u, err);
    const struct usage_row *rows = (const struct usage_row *)(const void *)u.rows.data;
    size_t num = u.rows.len / sizeof *rows;
    for (size_t i = num > JOB_USE_ATTEMPTS_MAX ? num - JOB_USE_ATTEMPTS_MAX : 0; i < num && rc == 0;
         i++) {
        rc = add_attempt(s, &rows[i], now_us, out, err);
    }
    buf_free(&u.rows);
    struct usage_time wait = {0};
    usage_add(&wait, row->wait_us);
    usage_add(&wait, row->waits_us && now_us > row->waits_us ? now_us - row->waits_us : 0);
    MSG_SET(out, device_seconds, usage_seconds(&u.devices));
    MSG_SET(out, wait_s, usage_seconds(&wait));
    bool holds = row->attempt.number && row->attempt.condition != ATTEMPT_GONE;
    MSG_SET(out, borrowed, holds && row->attempt.borrowed);
    if (with_attempts) {
        add_placement(s, row, out);
    }
    return rc;
}
