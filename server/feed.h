/* The feed thread: what streams to clients. Watchers of events and metrics, and readers of logs.
 *
 * A watcher first gets what the database has, a piece at a time as fast as it reads, then what the
 * controller hands over after each commit. A watcher that doesn't read loses messages and is told
 * how many; nobody waits for it. */
#ifndef TANDEM_SERVER_FEED_H
#define TANDEM_SERVER_FEED_H

#include "proto/names.h"
#include "server/mail.h"
#include "server/store/store.h"

#define FEED_WATCHERS_MAX 10000

struct feed;

/* Something that was committed. All fields owned; any may be NULL. */
struct feed_mail {
    struct mail mail; /* first */
    int64_t job_id;
    char tenant[65]; /* the job's */
    Event *event;
    Job *job; /* as it is after the event */
    StepMetrics *metrics;
};
struct feed_mail *feed_mail_new(int64_t job_id, const char *tenant);

/* reader: owned from now on. user_watchers: of one user at most; 0 = no limit. */
int feed_new(struct feed **out, struct store *reader, const char *data_dir, int32_t user_watchers,
             struct error *err);
void feed_free(struct feed *f);
/* Any thread. */
void feed_post(struct feed *f, struct feed_mail *m);
void feed_watch(struct feed *f, struct call *c, const WatchRequest *request);
void feed_watch_metrics(struct feed *f, struct call *c, const WatchMetricsRequest *request);
void feed_logs(struct feed *f, struct call *c, const LogsRequest *request);
/* The call is over. */
void feed_closed(struct feed *f, struct call *c);

#endif
