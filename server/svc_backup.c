/* Service Admin: Backup. On record first, by the owner; then the backup thread's. */
#include "server/app.h"

static int run_backup(void *controller, struct mail *m, struct error *err)
{
    const BackupRequest *request = (const BackupRequest *)m->message;
    if (audit_change(controller, call_caller(m->call), err, "backup to %.300s",
                     request->path && *request->path ? request->path : "the data folder") != 0) {
        return -1;
    }
    backup_post(app_of(m)->backup, m->call, request);
    return 0;
}

static void backup(void *ctx, struct call *c, const ProtobufCMessage *r)
{
    app_change(ctx, c, r, run_backup);
}

const struct method svc_backup_methods[] = {
    {"/tandem.v1.Admin/Backup", METHOD_UNARY, METHOD_ADMIN, &backup_request__descriptor, backup,
     NULL, NULL},
    {0},
};
