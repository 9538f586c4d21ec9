/* Service Admin. */
#include "server/app.h"
#include "server/msg.h"

static void get_server_info(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    (void)r;
    const struct app *a = ctx;
    const struct caller *who = call_caller(c);
    ServerInfo *info = msg_new(&server_info__descriptor);
    msg_text(&info->version, TANDEM_VERSION);
    MSG_SET(info, started_us, a->started_us);
    msg_text(&info->data_dir, a->data_dir);
    MSG_SET(info, schema_version, a->schema_version);
    msg_text(&info->user, who->user);
    msg_text(&info->tenant, who->tenant);
    msg_text(&info->role, who->role);
    call_reply(c, &info->base);
    msg_free(info);
}

const struct method svc_admin_methods[] = {
    {"/tandem.v1.Admin/GetServerInfo", METHOD_UNARY, METHOD_USER, &server_info_request__descriptor,
     get_server_info, NULL, NULL},
    {0},
};
