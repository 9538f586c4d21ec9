#include "server/usage_answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/msg.h"
#include "server/store/access_rows.h"
#include "server/usage.h"

#define DAY_US ((int64_t)24 * 3600 * 1000000)
#define JOBS_MAX 10000

struct question {
    struct store *s;
    const GetUsageRequest *request;
    const char *tenant; /* NULL = all */
    int64_t from_us, to_us, now_us;
    GetUsageReply *reply;
    struct usage *usage;
    struct buf jobs; /* struct usage_of_job, of all tenants: those that had most, and some more */
    size_t limit, num_jobs;
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

/* Who had most comes first; then by number. */
static int by_use(const void *a, const void *b)
{
    const struct usage_of_job *x = a, *y = b;
    double dx = usage_seconds(&x->sum.devices), dy = usage_seconds(&y->sum.devices);
    return dx != dy ? (dx < dy) - (dx > dy) : (x->job > y->job) - (x->job < y->job);
}

/* Sorts, and forgets those that are behind the limit. */
static void keep_most(struct question *x)
{
    struct usage_of_job *jobs = (struct usage_of_job *)(void *)x->jobs.data;
    size_t num = x->jobs.len / sizeof *jobs;
    if (num > 0) {
        qsort(jobs, num, sizeof *jobs, by_use);
    }
    if (num > x->limit) {
        x->jobs.len = x->limit * sizeof *jobs;
    }
}

static void take_job(void *arg, int64_t job, const struct usage_sum *sum)
{
    const struct taker *t = arg;
    struct usage_of_job j = {.job = job, .sum = *sum};
    memccpy(j.tenant, t->tenant, 0, sizeof j.tenant - 1);
    usage_add(&t->x->total, sum->devices.us);
    t->x->total.s += sum->devices.s;
    t->x->num_jobs++;
    buf_append(&t->x->jobs, &j, sizeof j);
    if (t->x->jobs.len >= 4 * t->x->limit * sizeof j) {
        keep_most(t->x);
    }
}

static bool take_tenant(void *arg, const struct tenant_row *row)
{
    struct question *x = arg;
    struct store *s = x->s;
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
    u->quota = msg_new(&quota__descriptor);
    MSG_SET(u->quota, devices, row->quota_devices);
    MSG_SET(u->quota, max_devices, row->max_devices);
    MSG_SET(u->quota, weight, row->weight);
    MSG_SET(u, devices_in_use, held);
    int64_t beyond = row->quota_devices < 0 ? 0 : held - row->quota_devices;
    MSG_SET(u, devices_borrowed, beyond > 0 ? beyond : 0);
    MSG_SET(u, num_queued, num_queued);
    return true;
}

static int add_jobs(struct question *x)
{
    keep_most(x);
    const struct usage_of_job *jobs = (const struct usage_of_job *)(const void *)x->jobs.data;
    size_t num = x->jobs.len / sizeof *jobs;
    for (size_t i = 0; i < num; i++) {
        struct job_row row;
        Usage *u = add_row(x, jobs[i].tenant, &jobs[i].sum);
        MSG_SET(u, job_id, jobs[i].job);
        if (store_job_get(x->s, jobs[i].job, &row, x->err) < 0) {
            return -1;
        }
        msg_text(&u->job_name, row.name);
    }
    MSG_SET(x->reply, jobs_left_out, (int64_t)(x->num_jobs - num));
    return 0;
}

static void set_figures(struct question *x, const struct usage_figures *f, bool is_admin)
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
        MSG_SET(r, num_free, f->num_free);
        if (all_s > 0) {
            MSG_SET(r, utilisation, usage_seconds(&x->total) / all_s);
        }
    }
}

static int answer(struct question *x)
{
    if (store_begin_read(x->s, x->err) != 0) {
        return -1;
    }
    x->rc = 0;
    if (store_tenant_list(x->s, x->tenant, false, take_tenant, x, x->err) != 0 ||
        (x->rc == 0 && x->request->by_job && add_jobs(x) != 0)) {
        x->rc = -1;
    }
    store_end_read(x->s);
    return x->rc;
}

int usage_answer(struct store *s, const GetUsageRequest *r, const char *tenant, bool is_admin,
                 const struct usage_figures *figures, int64_t now_us, GetUsageReply **out,
                 struct error *err)
{
    struct question x = {.s = s, .request = r, .err = err, .now_us = now_us, .tenant = tenant};
    x.limit = !r->has_limit         ? 1000
              : r->limit < 1        ? 1
              : r->limit > JOBS_MAX ? JOBS_MAX
                                    : (size_t)r->limit;
    x.to_us = r->has_to_us && r->to_us < now_us ? r->to_us : now_us;
    x.from_us = r->has_from_us ? r->from_us : x.to_us < 0 ? 0 : x.to_us - DAY_US;
    if (x.to_us < 0 || x.from_us < 0 || x.from_us > x.to_us) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "from_us: a time before to_us, and neither before 1970 nor to come");
    }
    x.usage = usage_new(x.from_us, x.to_us, now_us);
    x.reply = msg_new(&get_usage_reply__descriptor);
    int rc = answer(&x);
    usage_free(x.usage);
    buf_free(&x.jobs);
    if (rc != 0) {
        msg_free(x.reply);
        return -1;
    }
    set_figures(&x, figures, is_admin);
    *out = x.reply;
    return 0;
}
