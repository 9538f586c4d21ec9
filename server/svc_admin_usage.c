/* Service Admin: what tenants had of the devices. What the cluster is at the moment is asked of the
 * owner thread, what was, of the database. */
#include <stdlib.h>

#include "base/clock.h"
#include "server/msg.h"
#include "server/svc_admin.h"
#include "server/usage_answer.h"

struct usage_mail {
    struct mail mail; /* first */
    struct app *app;
    struct usage_figures figures;
};

/* ---- query thread ---- */

/* What takes more of the processor than this isn't done again for so many times as long: the thread
 * answers everybody's other questions. */
#define COST_MS 50
#define REST_TIMES 3

static int run_usage(void *query, struct mail *base, struct error *err)
{
    struct query *q = query;
    const struct usage_mail *m = (const struct usage_mail *)base;
    const GetUsageRequest *r = (const GetUsageRequest *)base->message;
    const struct caller *who = call_caller(base->call);
    const char *tenant = r->tenant && *r->tenant ? r->tenant : rights_tenant(who);
    GetUsageReply *reply;
    if (clock_mono_ms() < q->usage_rest_ms) {
        return error_set(
            err, ERR_RESOURCE_EXHAUSTED,
            "the server has just summed up a long time for somebody: ask again in %lld "
            "s",
            (long long)(q->usage_rest_ms - clock_mono_ms()) / 1000 + 1);
    }
    int64_t began_ms = clock_thread_ms();
    int rc = usage_answer(q->reader, r, tenant, rights_is_admin(who), &m->figures, clock_wall_us(),
                          &reply, err);
    int64_t took_ms = clock_thread_ms() - began_ms;
    q->usage_rest_ms = took_ms > COST_MS ? clock_mono_ms() + REST_TIMES * took_ms : 0;
    if (rc != 0) {
        return -1;
    }
    call_reply(base->call, &reply->base);
    msg_free(reply);
    return 0;
}

/* ---- owner thread ---- */

static struct usage_figures look_at_cluster(struct controller *c)
{
    const struct topology *t = controller_topology(c);
    const bool *drained = drains_flags(t->drains);
    struct usage_figures f = {.num_devices = t->fabric->num_devices};
    int64_t *holders = calloc((size_t)f.num_devices + 1, sizeof *holders);
    ASSERT(holders);
    controller_holders(c, holders);
    for (int64_t i = 0; i < f.num_devices; i++) {
        bool is_drained = drained && drained[i];
        f.num_used += holders[i] != 0;
        f.num_drained += is_drained;
        f.num_free += holders[i] == 0 && !is_drained;
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
