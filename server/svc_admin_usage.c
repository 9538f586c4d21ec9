/* Service Admin: what tenants had of the devices. What the cluster is at the moment is asked of the
 * owner thread, what was, of the database. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/msg.h"
#include "server/svc_admin.h"
#include "server/usage.h"

#define DAY_US ((int64_t)24 * 3600 * 1000000)
#define JOBS_MAX 10000

struct figures {
    int64_t num_devices, num_drained, num_used;
};

struct usage_mail {
    struct mail mail; /* first */
    struct app *app;
    struct figures figures;
};

/* ---- query thread ---- */

struct question {
    struct query *q;
    const GetUsageRequest *request;
    const char *tenant; /* NULL = all */
    int64_t from_us, to_us, now_us;
    GetUsageReply *reply;
    struct usage *usage;
    struct buf jobs; /* struct usage_of_job; of all tenants */
    struct usage_time total;
    bool too_many;
    struct error *err;
    int rc;
};

struct usage_of_job {
    char tenant[ACCESS_NAME_SIZE];
    int64_t job;
    struct usage_sum sum;
};

static bool take_attempt(void *arg, const struct usage_row *r)
{
    struct question *x = arg;
    x->too_many = !usage_take(x->usage, r);
    return !x->too_many;
}

static Usage *add_row(struct question *x, const char *tenant, const struct usage_sum *sum)
{
    Usage *u = msg_new(&usage__descriptor);
    msg_text(&u->tenant, tenant);
    MSG_SET(u, device_seconds, usage_seconds(&sum->devices));
    MSG_SET(u, borrowed_device_seconds, usage_seconds(&sum->borrowed));
    MSG_SET(u, jobs, sum->jobs);
    MSG_SET(u, attempts, sum->attempts);
    MSG_SET(u, wait_mean_s, sum->wait_mean_s);
    MSG_SET(u, wait_p95_s, sum->wait_p95_s);
    MSG_SET(u, evictions, sum->evictions);
    msg_push(&x->reply->usage, &x->reply->n_usage, u);
    return u;
}

struct taker {
    struct question *x;
    const char *tenant;
};

static void take_job(void *arg, int64_t job, const struct usage_sum *sum)
{
    const struct taker *t = arg;
    struct usage_of_job j = {.job = job, .sum = *sum};
    memccpy(j.tenant, t->tenant, 0, sizeof j.tenant - 1);
    usage_add(&t->x->total, sum->devices.us);
    t->x->total.s += sum->devices.s;
    buf_append(&t->x->jobs, &j, sizeof j);
}

static bool take_tenant(void *arg, const struct tenant_row *row)
{
    struct question *x = arg;
    struct store *s = x->q->reader;
    int64_t held, num_queued;
    if (store_usage_between(s, row->name, x->from_us, x->to_us, take_attempt, x, x->err) != 0 ||
        store_usage_now(s, row->name, &held, &num_queued, x->err) != 0) {
        x->rc = -1;
        return false;
    }
    if (x->too_many) {
        x->rc = error_set(x->err, ERR_RESOURCE_EXHAUSTED,
                          "more than %d attempts lie in that time: ask for a shorter one",
                          USAGE_ATTEMPTS_MAX);
        return false;
    }
    x->reply->num_queued += num_queued;
    if (x->request->by_job) {
        struct taker t = {x, row->name};
        usage_by_job(x->usage, take_job, &t);
        return true;
    }
    struct usage_sum sum;
    usage_sum(x->usage, &sum);
    usage_add(&x->total, sum.devices.us);
    x->total.s += sum.devices.s;
    Usage *u = add_row(x, row->name, &sum);
    struct tenant_row holding = *row;
    holding.devices_in_use = held;
    Tenant *now = admin_tenant_message(&holding);
    u->quota = now->quota;
    now->quota = NULL;
    MSG_SET(u, devices_in_use, now->devices_in_use);
    MSG_SET(u, devices_borrowed, now->devices_borrowed);
    MSG_SET(u, num_queued, num_queued);
    msg_free(now);
    return true;
}

/* Who had most comes first; then by number. */
static int by_use(const void *a, const void *b)
{
    const struct usage_of_job *x = a, *y = b;
    double dx = usage_seconds(&x->sum.devices), dy = usage_seconds(&y->sum.devices);
    return dx != dy ? (dx < dy) - (dx > dy) : (x->job > y->job) - (x->job < y->job);
}

static int add_jobs(struct question *x)
{
    struct usage_of_job *jobs = (struct usage_of_job *)(void *)x->jobs.data;
    size_t num = x->jobs.len / sizeof *jobs, limit = 1000;
    if (x->request->has_limit) {
        limit = x->request->limit < 1          ? 1
                : x->request->limit > JOBS_MAX ? JOBS_MAX
                                               : (size_t)x->request->limit;
    }
    if (num > 0) {
        qsort(jobs, num, sizeof *jobs, by_use);
    }
    for (size_t i = 0; i < num && i < limit; i++) {
        struct job_row row;
        Usage *u = add_row(x, jobs[i].tenant, &jobs[i].sum);
        MSG_SET(u, job_id, jobs[i].job);
        if (store_job_get(x->q->reader, jobs[i].job, &row, x->err) < 0) {
            return -1;
        }
        msg_text(&u->job_name, row.name);
    }
    MSG_SET(x->reply, jobs_left_out, (int64_t)(num > limit ? num - limit : 0));
    return 0;
}

static void set_figures(struct question *x, const struct figures *f, bool is_admin)
{
    GetUsageReply *r = x->reply;
    MSG_SET(r, from_us, x->from_us);
    MSG_SET(r, to_us, x->to_us);
    MSG_SET(r, num_devices, f->num_devices);
    MSG_SET(r, num_drained, f->num_drained);
    r->has_num_queued = 1;
    if (is_admin) {
        double all_s = (double)f->num_devices * (double)(x->to_us - x->from_us) / 1e6;
        MSG_SET(r, num_used, f->num_used);
        if (all_s > 0) {
            MSG_SET(r, utilisation, usage_seconds(&x->total) / all_s);
        }
    }
}

static int answer(struct question *x)
{
    if (store_begin_read(x->q->reader, x->err) != 0) {
        return -1;
    }
    x->rc = 0;
    if (store_tenant_list(x->q->reader, x->tenant, false, take_tenant, x, x->err) != 0 ||
        (x->rc == 0 && x->request->by_job && add_jobs(x) != 0)) {
        x->rc = -1;
    }
    store_end_read(x->q->reader);
    return x->rc;
}

static int run_usage(void *query, struct mail *base, struct error *err)
{
    const struct usage_mail *m = (const struct usage_mail *)base;
    const GetUsageRequest *r = (const GetUsageRequest *)base->message;
    const struct caller *who = call_caller(base->call);
    struct question x = {.q = query, .request = r, .err = err, .now_us = clock_wall_us()};
    x.to_us = r->has_to_us && r->to_us < x.now_us ? r->to_us : x.now_us;
    x.from_us = r->has_from_us ? r->from_us : x.to_us - DAY_US;
    x.tenant = r->tenant && *r->tenant ? r->tenant : rights_tenant(who);
    if (x.from_us < 0 || x.from_us > x.to_us) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "from_us: a time before to_us, and neither before 1970 nor to come");
    }
    x.usage = usage_new(x.from_us, x.to_us, x.now_us);
    x.reply = msg_new(&get_usage_reply__descriptor);
    int rc = answer(&x);
    if (rc == 0) {
        set_figures(&x, &m->figures, rights_is_admin(who));
        call_reply(base->call, &x.reply->base);
    }
    msg_free(x.reply);
    usage_free(x.usage);
    buf_free(&x.jobs);
    return rc;
}

/* ---- owner thread ---- */

static struct figures look_at_cluster(struct controller *c)
{
    const struct topology *t = controller_topology(c);
    const bool *drained = drains_flags(t->drains);
    struct figures f = {.num_devices = t->fabric->num_devices};
    int64_t *holders = calloc((size_t)f.num_devices + 1, sizeof *holders);
    ASSERT(holders);
    controller_holders(c, holders);
    for (int64_t i = 0; i < f.num_devices; i++) {
        f.num_used += holders[i] != 0;
        f.num_drained += drained && drained[i];
    }
    free(holders);
    return f;
}

static int run_pass_on(void *owner, struct mail *base, struct error *err)
{
    (void)owner;
    (void)err;
    const struct usage_mail *m = (const struct usage_mail *)base;
    struct usage_mail *next = mail_new(sizeof *next, run_usage, base->call, base->message);
    next->app = m->app;
    next->figures = m->figures;
    query_post(m->app->query, &next->mail);
    return 0;
}

int admin_get_usage(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const GetUsageRequest *r = (const GetUsageRequest *)m->message;
    const char *tenant;
    struct tenant_row row;
    if (rights_ask_tenant(call_caller(m->call), r->tenant, &tenant, err) != 0) {
        return -1;
    }
    int rc =
        r->tenant && *r->tenant ? store_tenant_get(controller_store(c), r->tenant, &row, err) : 1;
    if (rc != 1) {
        return rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "there is no tenant %.64s", r->tenant);
    }
    struct usage_mail *next = mail_new(sizeof *next, run_pass_on, m->call, m->message);
    next->app = app_of(m);
    next->figures = look_at_cluster(c);
    controller_then(c, &next->mail);
    return 0;
}
