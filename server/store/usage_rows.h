/* Attempts as accounting sees them: who held how many devices for how long, and waited for them. */
#ifndef TANDEM_SERVER_STORE_USAGE_ROWS_H
#define TANDEM_SERVER_STORE_USAGE_ROWS_H

#include "server/store/store.h"

struct usage_row {
    int64_t job;
    int32_t number;
    int64_t devices;
    int64_t created_us;
    int64_t gone_us; /* 0 = it holds its devices still */
    int64_t device_us;
    int64_t wait_us;
    int64_t start_step; /* of one job's only */
    bool borrowed;
    bool evicted;
};

/* Rows come to fn one by one, borrowed for its call; it returns false to stop. */
typedef bool (*store_usage_fn)(void *arg, const struct usage_row *row);

/* All of one job, oldest first. */
int store_usage_of_job(struct store *s, int64_t job, store_usage_fn fn, void *arg,
                       struct error *err);
/* Of a tenant: that were made before to_us and held devices until from_us or longer, in no order.
 */
int store_usage_between(struct store *s, const char *tenant, int64_t from_us, int64_t to_us,
                        store_usage_fn fn, void *arg, struct error *err);
/* Of a tenant: devices that its attempts hold, and its jobs in the queue. */
int store_usage_now(struct store *s, const char *tenant, int64_t *held, int64_t *queued,
                    struct error *err);

#endif
