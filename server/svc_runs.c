/* Service Runs. */
#include "server/app.h"
#include "server/curve.h"
#include "server/msg.h"

static int run_get_metrics(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const GetMetricsRequest *r = (const GetMetricsRequest *)m->message;
    struct job_row row;
    Metrics *reply;
    /* Count and rows of one state of the database. */
    if (store_begin_read(q->reader, err) != 0) {
        return -1;
    }
    int rc = query_find(q, r->job, call_caller(m->call), &row, err);
    if (rc == 0) {
        rc = curve_read(q->reader, r, row.id, &reply, err);
    }
    store_end_read(q->reader);
    if (rc == 0) {
        call_reply(m->call, &reply->base);
        msg_free(reply);
    }
    return rc;
}

static void get_metrics(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, run_get_metrics);
}

static void watch_metrics(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    feed_watch_metrics(((struct app *)ctx)->feed, c, (const WatchMetricsRequest *)r);
}

static void closed(void *ctx, struct call *c)
{
    feed_closed(((struct app *)ctx)->feed, c);
}

const struct method svc_runs_methods[] = {
    {"/tandem.v1.Runs/GetMetrics", METHOD_UNARY, METHOD_VIEWER, &get_metrics_request__descriptor,
     get_metrics, NULL, NULL},
    {"/tandem.v1.Runs/WatchMetrics", METHOD_SERVER_STREAM, METHOD_VIEWER,
     &watch_metrics_request__descriptor, watch_metrics, NULL, closed},
    {0},
};
