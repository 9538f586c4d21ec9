/* Sums over attempts within a time: what a tenant, or each of its jobs, had of the devices, and how
 * long they waited. The only books there are: nothing else is kept that could drift from attempts.
 * Pure. */
#ifndef TANDEM_SERVER_USAGE_H
#define TANDEM_SERVER_USAGE_H

#include "server/store/usage_rows.h"

/* Attempts that one question looks at; 80 MB. */
#define USAGE_ATTEMPTS_MAX 2000000

/* Microseconds in two parts: a sum of many stays exact and never overflows. */
struct usage_time {
    int64_t s, us; /* 0 <= us < 1e6 */
};
void usage_add(struct usage_time *t, int64_t us);
double usage_seconds(const struct usage_time *t);

struct usage_sum {
    struct usage_time devices; /* device-time */
    struct usage_time borrowed;
    int64_t jobs, attempts, evictions;
    double wait_mean_s, wait_p95_s; /* of attempts that began in the time; 0 = none did */
};

/* Device-time of an attempt; of one that holds its devices still, up to now. */
int64_t usage_device_us(const struct usage_row *r, int64_t now_us);

struct usage;
struct usage *usage_new(int64_t from_us, int64_t to_us, int64_t now_us);
void usage_free(struct usage *u);
/* False: there are too many. */
bool usage_take(struct usage *u, const struct usage_row *r);
/* Sums of all that was taken since the last call; forgets it then. */
void usage_sum(struct usage *u, struct usage_sum *out);
/* The same for each job: fn gets them by id. */
typedef void (*usage_job_fn)(void *arg, int64_t job, const struct usage_sum *sum);
void usage_by_job(struct usage *u, usage_job_fn fn, void *arg);

#endif
