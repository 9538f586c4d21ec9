/* One stream of the feed thread. Private to feed*.c. */
#ifndef TANDEM_SERVER_FEED_WATCHER_H
#define TANDEM_SERVER_FEED_WATCHER_H

#include "server/feed.h"

enum watcher_kind { WATCHER_EVENTS, WATCHER_METRICS, WATCHER_LOGS };

struct log_file {
    int32_t rank; /* -1: tandem-node's own */
    int64_t offset;
    uint64_t inode; /* of the file that offset counts in; 0 = none seen yet */
};

struct watcher {
    enum watcher_kind kind;
    struct call *call; /* a reference */
    int64_t job_id;    /* 0 = all that it may see */
    /* Whose jobs these are; NULL = anybody's. The call's, as it was when the stream was opened: it
     * ends when that changes. */
    const char *tenant;
    struct watcher *next;
    bool replaying; /* from the database */
    bool ending;    /* the job has ended: finish after the replay */
    int64_t dropped;
    /* EVENTS */
    int64_t after_event;
    bool with_metrics;
    /* Last row that was sent. */
    int32_t attempt;
    int64_t step;
    /* LOGS */
    struct log_file *files; /* owned */
    int32_t num_files;
    bool follow, prefixed, newest_attempt;
    int64_t next_poll_ms;
};

struct feed {
    struct store *reader; /* owned */
    char data_dir[4096];
    struct worker *worker;
    struct watcher *watchers; /* feed thread */
    int32_t num_watchers;
    int32_t user_watchers; /* of one user at most; 0 = no limit */
};

/* Opens a log reader on what request asks for. */
int feed_logs_open(struct feed *f, struct watcher *w, const LogsRequest *request,
                   const struct job_row *row, struct error *err);
/* Sends what there is. True: all was sent and the stream is to end. *wait_ms: when to come again.
 */
bool feed_logs_pump(struct feed *f, struct watcher *w, int64_t *wait_ms);

#endif
