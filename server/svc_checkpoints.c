/* Service Checkpoints. */
#include <stdio.h>

#include "server/app.h"
#include "server/job.h"
#include "server/msg.h"

#define PAGE_MAX 1000

struct collecting {
    const char *data_dir;
    ListCheckpointsReply *reply;
};

/* Rows know folders below the job's; callers see whole paths. */
static Checkpoint *with_path(const Checkpoint *c, const char *data_dir)
{
    Checkpoint *copy = msg_new(&checkpoint__descriptor);
    *copy = *c;
    copy->path = NULL;
    char dir[4096];
    if (job_dir(dir, sizeof dir, data_dir, c->job_id)) {
        msg_printf(&copy->path, "%s/%s", dir, c->path);
    }
    return copy;
}

static bool collect(void *arg, const Checkpoint *c)
{
    struct collecting *to = arg;
    msg_push(&to->reply->checkpoints, &to->reply->n_checkpoints, with_path(c, to->data_dir));
    return true;
}

static int run_list(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const ListCheckpointsRequest *r = (const ListCheckpointsRequest *)m->message;
    struct job_row row;
    if (query_find(q, r->job, call_caller(m->call), &row, err) != 0) {
        return -1;
    }
    int32_t size = r->page_size < 1 ? 100 : r->page_size > PAGE_MAX ? PAGE_MAX : r->page_size;
    struct collecting to = {.data_dir = q->data_dir,
                            .reply = msg_new(&list_checkpoints_reply__descriptor)};
    int rc = store_checkpoint_list(q->reader, row.id, -1, r->before_id, size, collect, &to, err);
    if (rc == 0) {
        size_t num = to.reply->n_checkpoints;
        MSG_SET(to.reply, next_before_id,
                num == (size_t)size ? to.reply->checkpoints[num - 1]->id : 0);
        call_reply(m->call, &to.reply->base);
    }
    msg_free(to.reply);
    return rc;
}

static int run_get(void *query, struct mail *m, struct error *err)
{
    struct query *q = query;
    const CheckpointRef *r = (const CheckpointRef *)m->message;
    struct job_row row;
    if (query_find(q, r->job, call_caller(m->call), &row, err) != 0) {
        return -1;
    }
    struct collecting to = {.data_dir = q->data_dir,
                            .reply = msg_new(&list_checkpoints_reply__descriptor)};
    int rc = store_checkpoint_list(q->reader, row.id, r->has_step ? r->step : -1, 0, 1, collect,
                                   &to, err);
    if (rc == 0 && to.reply->n_checkpoints == 0) {
        rc = r->has_step
                 ? error_set(err, ERR_NOT_FOUND, "job %lld has no checkpoint of step %lld",
                             (long long)row.id, (long long)r->step)
                 : error_set(err, ERR_NOT_FOUND, "job %lld has no checkpoint", (long long)row.id);
    }
    if (rc == 0) {
        call_reply(m->call, &to.reply->checkpoints[0]->base);
    }
    msg_free(to.reply);
    return rc;
}

static void list(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, run_list);
}

static void get(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_to_query(ctx, c, r, run_get);
}

const struct method svc_checkpoints_methods[] = {
    {"/tandem.v1.Checkpoints/List", METHOD_UNARY, METHOD_VIEWER,
     &list_checkpoints_request__descriptor, list, NULL, NULL},
    {"/tandem.v1.Checkpoints/Get", METHOD_UNARY, METHOD_VIEWER, &checkpoint_ref__descriptor, get,
     NULL, NULL},
    {0},
};
