#include "server/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/feed_watcher.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/rights.h"
#include "server/worker.h"

/* Rows a time, and how full a call's queue may get, while the database is read. */
#define REPLAY_ROWS 64
#define REPLAY_QUEUE (CALL_QUEUE_MAX / 2)
#define REPLAY_WAIT_MS 5
#define TELL_WAIT_MS 50
/* A tenant has as many watchers as so many of its users may have. */
#define TENANT_USERS 4

struct request_mail {
    struct mail mail; /* first; message: the request */
    enum watcher_kind kind;
};

/* ---- watchers ---- */

static void free_watcher(struct watcher *w)
{
    call_unref(w->call);
    free(w->files);
    free(w);
}

static void remove_watcher(struct feed *f, struct watcher *w)
{
    struct watcher **p = &f->watchers;
    while (*p != w) {
        p = &(*p)->next;
    }
    *p = w->next;
    f->num_watchers--;
    free_watcher(w);
}

static void finish_watcher(struct feed *f, struct watcher *w)
{
    call_finish(w->call);
    remove_watcher(f, w);
}

/* Says how many were lost, as soon as there is room for it. */
static bool tell_dropped(struct watcher *w)
{
    if (!w->dropped) {
        return true;
    }
    bool sent;
    if (w->kind == WATCHER_METRICS) {
        WatchMetricsReply reply = WATCH_METRICS_REPLY__INIT;
        MSG_SET(&reply, dropped, w->dropped);
        sent = call_send(w->call, &reply.base);
    } else {
        Event e = EVENT__INIT;
        e.kind = (char *)(uintptr_t) "dropped";
        e.has_job_id = w->job_id != 0;
        e.job_id = w->job_id;
        MSG_SET(&e, dropped, w->dropped);
        WatchReply reply = WATCH_REPLY__INIT;
        reply.event = &e;
        sent = call_send(w->call, &reply.base);
    }
    if (sent) {
        w->dropped = 0;
    }
    return sent;
}

static void send_packed(struct watcher *w, const struct call_packed *p)
{
    if (!tell_dropped(w) || !call_send_packed(w->call, p)) {
        w->dropped++;
    }
}

/* ---- from the database ---- */

static bool send_event(void *arg, const Event *e)
{
    struct watcher *w = arg;
    WatchReply reply = WATCH_REPLY__INIT;
    reply.event = (Event *)(uintptr_t)e;
    if (!call_send(w->call, &reply.base)) {
        return false;
    }
    w->after_event = e->id;
    return true;
}

static bool send_metrics(void *arg, const StepMetrics *m)
{
    struct watcher *w = arg;
    WatchMetricsReply reply = WATCH_METRICS_REPLY__INIT;
    reply.metrics = (StepMetrics *)(uintptr_t)m;
    if (!call_send(w->call, &reply.base)) {
        return false;
    }
    w->attempt = m->attempt;
    w->step = m->step;
    return true;
}

static void send_job(struct feed *f, struct watcher *w)
{
    struct job_row row;
    if (w->job_id == 0 || store_job_get(f->reader, w->job_id, &row, NULL) != 1) {
        return;
    }
    WatchReply *reply = msg_new(&watch_reply__descriptor);
    reply->job = job_message(&row, f->data_dir, NULL, false);
    if (!call_send(w->call, &reply->base)) {
        w->dropped++;
    }
    msg_free(reply);
}

/* One piece. True: the watcher has all that the database has. */
static bool replay(struct feed *f, struct watcher *w)
{
    int64_t event = w->after_event, step = w->step;
    int32_t attempt = w->attempt;
    struct error err = {0};
    int rc;
    if (w->kind == WATCHER_EVENTS) {
        rc = store_event_list(f->reader, w->job_id, w->tenant, event, REPLAY_ROWS, send_event, w,
                              &err);
    } else {
        rc = store_metric_after(f->reader, w->job_id, attempt, step, REPLAY_ROWS, send_metrics, w,
                                &err);
    }
    if (rc != 0) {
        log_warn("watch: %s", err.text);
        return true;
    }
    bool moved = event != w->after_event || step != w->step || attempt != w->attempt;
    return !moved && call_queued(w->call) < CALL_QUEUE_MAX;
}

static int64_t pump(struct feed *f, struct watcher *w)
{
    int64_t wait_ms = -1;
    if (w->kind == WATCHER_LOGS) {
        if (feed_logs_pump(f, w, &wait_ms)) {
            finish_watcher(f, w);
            return -1;
        }
        return wait_ms;
    }
    while (w->replaying && call_queued(w->call) < REPLAY_QUEUE) {
        if (replay(f, w)) {
            w->replaying = false;
            if (w->kind == WATCHER_EVENTS) {
                send_job(f, w);
            }
        }
    }
    if (w->replaying) {
        return REPLAY_WAIT_MS;
    }
    if (w->ending) {
        /* What it lost it is told, be it the end: there is room for that once it reads. */
        if (!tell_dropped(w) && !call_is_over(w->call)) {
            return TELL_WAIT_MS;
        }
        finish_watcher(f, w);
    }
    return -1;
}

static int64_t idle(void *owner)
{
    struct feed *f = owner;
    int64_t wait_ms = -1;
    for (struct watcher *w = f->watchers, *next; w; w = next) {
        next = w->next;
        int64_t mine = pump(f, w);
        if (mine >= 0 && (wait_ms < 0 || mine < wait_ms)) {
            wait_ms = mine;
        }
    }
    return wait_ms;
}

/* ---- what was committed ---- */

static bool sees(const struct watcher *w, const struct feed_mail *m)
{
    return w->job_id ? w->job_id == m->job_id : !w->tenant || strcmp(w->tenant, m->tenant) == 0;
}

static void give_event(struct feed *f, const struct feed_mail *m)
{
    WatchReply reply = WATCH_REPLY__INIT;
    reply.event = m->event;
    reply.job = m->job;
    struct call_packed *p = call_pack(&reply.base);
    bool ends = m->event->has_to && job_state_is_end(m->event->to);
    for (struct watcher *w = f->watchers, *next; w; w = next) {
        next = w->next;
        if (w->kind == WATCHER_LOGS || !sees(w, m)) {
            continue;
        }
        if (w->kind == WATCHER_EVENTS && !w->replaying && m->event->id > w->after_event) {
            send_packed(w, p);
            w->after_event = m->event->id;
        }
        if (ends && w->job_id) {
            w->ending = true;
            pump(f, w);
        }
    }
    call_packed_free(p);
}

static void give_metrics(struct feed *f, const struct feed_mail *m)
{
    WatchReply as_event = WATCH_REPLY__INIT;
    as_event.metrics = m->metrics;
    WatchMetricsReply as_metrics = WATCH_METRICS_REPLY__INIT;
    as_metrics.metrics = m->metrics;
    struct call_packed *for_events = call_pack(&as_event.base);
    struct call_packed *for_metrics = call_pack(&as_metrics.base);
    for (struct watcher *w = f->watchers; w; w = w->next) {
        if (w->replaying || !sees(w, m)) {
            continue;
        }
        if (w->kind == WATCHER_EVENTS && w->with_metrics) {
            send_packed(w, for_events);
        } else if (w->kind == WATCHER_METRICS &&
                   (m->metrics->attempt > w->attempt ||
                    (m->metrics->attempt == w->attempt && m->metrics->step > w->step))) {
            send_packed(w, for_metrics);
            w->attempt = m->metrics->attempt;
            w->step = m->metrics->step;
        }
    }
    call_packed_free(for_events);
    call_packed_free(for_metrics);
}

static int run_commit(void *owner, struct mail *base, struct error *err)
{
    (void)err;
    struct feed *f = owner;
    const struct feed_mail *m = (const struct feed_mail *)base;
    if (m->event) {
        give_event(f, m);
    }
    if (m->metrics) {
        give_metrics(f, m);
    }
    return 0;
}

/* ---- requests ---- */

static int open_watcher(struct feed *f, struct watcher *w, const ProtobufCMessage *message,
                        const char *tenant, struct error *err)
{
    const char *ref = NULL;
    if (w->kind == WATCHER_EVENTS) {
        ref = ((const WatchRequest *)message)->job;
    } else if (w->kind == WATCHER_METRICS) {
        ref = ((const WatchMetricsRequest *)message)->job;
    } else {
        ref = ((const LogsRequest *)message)->job;
    }
    struct job_row row = {0};
    if (w->kind != WATCHER_EVENTS || (ref && *ref)) {
        if (store_job_find(f->reader, ref, tenant, &w->job_id, err) != 1 ||
            store_job_get(f->reader, w->job_id, &row, err) != 1) {
            return -1;
        }
        w->ending = job_state_is_end(row.state);
    }
    if (w->kind == WATCHER_LOGS) {
        return feed_logs_open(f, w, (const LogsRequest *)message, &row, err);
    }
    if (w->kind == WATCHER_METRICS) {
        const WatchMetricsRequest *r = (const WatchMetricsRequest *)message;
        w->attempt = r->after_attempt;
        w->step = r->after_step;
        w->replaying = true;
        return 0;
    }
    const WatchRequest *r = (const WatchRequest *)message;
    w->with_metrics = r->metrics;
    w->replaying = r->has_after_event_id;
    w->after_event = r->after_event_id;
    if (!w->replaying && store_event_last(f->reader, &w->after_event, err) != 0) {
        return -1;
    }
    send_job(f, w);
    return 0;
}

/* Counted only where it can matter. Many users of a tenant leave room for others, too. */
static int check_user(const struct feed *f, const struct caller *who, struct error *err)
{
    int32_t num = 0, of_tenant = 0;
    if (f->user_watchers <= 0 || f->num_watchers < f->user_watchers || !who->token_id) {
        return 0;
    }
    for (const struct watcher *w = f->watchers; w; w = w->next) {
        const struct caller *other = call_caller(w->call);
        bool same = other->token_id && strcmp(other->tenant, who->tenant) == 0;
        of_tenant += same;
        num += same && strcmp(other->user, who->user) == 0;
    }
    if (of_tenant / TENANT_USERS >= f->user_watchers) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED,
                         "the users of tenant %s have %d watchers open, as many as may be; close "
                         "some",
                         who->tenant, of_tenant);
    }
    if (num < f->user_watchers) {
        return 0;
    }
    return error_set(err, ERR_RESOURCE_EXHAUSTED,
                     "%s of %s has %d watchers open, as many as may be; close some", who->user,
                     who->tenant, num);
}

static int run_request(void *owner, struct mail *base, struct error *err)
{
    struct feed *f = owner;
    struct request_mail *m = (struct request_mail *)base;
    if (call_is_over(m->mail.call)) {
        return 0;
    }
    if (f->num_watchers >= FEED_WATCHERS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%d watchers already; try again later",
                         FEED_WATCHERS_MAX);
    }
    const struct caller *who = call_caller(m->mail.call);
    if (check_user(f, who, err) != 0) {
        return -1;
    }
    struct watcher *w = calloc(1, sizeof *w);
    ASSERT(w);
    w->kind = m->kind;
    w->call = call_ref(m->mail.call);
    w->tenant = rights_tenant(call_caller(w->call));
    /* One state of the database: the job and the last event it has. */
    int rc = store_begin_read(f->reader, err);
    if (rc == 0) {
        rc = open_watcher(f, w, m->mail.message, w->tenant, err);
        store_end_read(f->reader);
    }
    if (rc != 0) {
        free_watcher(w);
        return -1;
    }
    w->next = f->watchers;
    f->watchers = w;
    f->num_watchers++;
    call_open(w->call); /* from here on it misses nothing */
    return 0;
}

static int run_closed(void *owner, struct mail *m, struct error *err)
{
    (void)err;
    struct feed *f = owner;
    for (struct watcher *w = f->watchers; w; w = w->next) {
        if (w->call == m->call) {
            remove_watcher(f, w);
            break;
        }
    }
    return 0;
}

static void post_request(struct feed *f, struct call *c, enum watcher_kind kind,
                         const ProtobufCMessage *request)
{
    struct request_mail *m = mail_new(sizeof *m, run_request, c, request);
    m->kind = kind;
    worker_post(f->worker, &m->mail);
}

void feed_watch(struct feed *f, struct call *c, const WatchRequest *request)
{
    post_request(f, c, WATCHER_EVENTS, &request->base);
}

void feed_watch_metrics(struct feed *f, struct call *c, const WatchMetricsRequest *request)
{
    post_request(f, c, WATCHER_METRICS, &request->base);
}

void feed_logs(struct feed *f, struct call *c, const LogsRequest *request)
{
    post_request(f, c, WATCHER_LOGS, &request->base);
}

void feed_closed(struct feed *f, struct call *c)
{
    worker_post(f->worker, mail_new(sizeof(struct mail), run_closed, c, NULL));
}

static void free_feed_mail(struct mail *base)
{
    struct feed_mail *m = (struct feed_mail *)base;
    msg_free(m->event);
    msg_free(m->job);
    msg_free(m->metrics);
}

struct feed_mail *feed_mail_new(int64_t job_id, const char *tenant)
{
    struct feed_mail *m = mail_new(sizeof *m, run_commit, NULL, NULL);
    m->mail.free_fn = free_feed_mail;
    m->job_id = job_id;
    snprintf(m->tenant, sizeof m->tenant, "%s", tenant);
    return m;
}

void feed_post(struct feed *f, struct feed_mail *m)
{
    worker_post(f->worker, &m->mail);
}

int feed_new(struct feed **out, struct store *reader, const char *data_dir, int32_t user_watchers,
             struct error *err)
{
    struct feed *f = calloc(1, sizeof *f);
    if (!f) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    f->reader = reader;
    f->user_watchers = user_watchers;
    snprintf(f->data_dir, sizeof f->data_dir, "%s", data_dir);
    if (worker_new(&f->worker, "feed", f, idle, err) != 0) {
        free(f);
        return -1;
    }
    *out = f;
    return 0;
}

void feed_free(struct feed *f)
{
    if (!f) {
        return;
    }
    worker_free(f->worker);
    while (f->watchers) {
        remove_watcher(f, f->watchers);
    }
    store_close(f->reader);
    free(f);
}
