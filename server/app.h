/* The parts of a running tandemd, and the services that speak for them. */
#ifndef TANDEM_SERVER_APP_H
#define TANDEM_SERVER_APP_H

#include "server/access.h"
#include "server/auth.h"
#include "server/backup.h"
#include "server/controller.h"
#include "server/feed.h"
#include "server/query.h"
#include "server/room.h"
#include "server/rpc/server.h"

struct app {
    const char *data_dir;
    int64_t started_us;
    int32_t schema_version;
    struct auth *auth;
    struct audit *audit;
    struct access *access;
    struct controller *controller;
    struct query *query;
    struct feed *feed;
    struct backup *backup;
    struct room *room;
};

/* The methods of each service; handlers run on io threads with the app as ctx. */
extern const struct method svc_jobs_methods[];
extern const struct method svc_runs_methods[];
extern const struct method svc_checkpoints_methods[];
extern const struct method svc_cluster_methods[];
extern const struct method svc_plans_methods[];
extern const struct method svc_admin_methods[];
extern const struct method svc_backup_methods[];
extern const struct method svc_worker_methods[];

/* Sends a request to the owner thread, or to the query thread; run gets the struct controller or
 * the struct query. A refusal for want of rights is noted in the audit, and of a request that would
 * change something (app_change) also that its object isn't there; the change itself is run's. */
void app_change(struct app *a, struct call *c, const ProtobufCMessage *request,
                int (*run)(void *controller, struct mail *m, struct error *err));
void app_to_owner(struct app *a, struct call *c, const ProtobufCMessage *request,
                  int (*run)(void *controller, struct mail *m, struct error *err));
void app_to_query(struct app *a, struct call *c, const ProtobufCMessage *request,
                  int (*run)(void *query, struct mail *m, struct error *err));
/* The app of a mail that one of these sent. */
struct app *app_of(struct mail *m);

#endif
