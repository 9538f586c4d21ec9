/* Which rows of each attempt the shown curve has. Private to server/store.
 *
 * An attempt covers the steps after its start_step, so it hides what earlier attempts have there:
 * row (step, attempt a) is visible up to the smallest start_step of the attempts after a. */
#ifndef TANDEM_SERVER_STORE_METRIC_VISIBLE_H
#define TANDEM_SERVER_STORE_METRIC_VISIBLE_H

#include <stdint.h>

#include "server/store/store.h"

struct metric_visible {
    int64_t from, to;     /* of all attempts */
    int32_t only;         /* this attempt, all of it; 0 = the shown curve */
    int64_t *last;        /* owned; last visible step, index = attempt */
    int32_t num_last;     /* 0 = all of every attempt */
    int32_t *with_chunks; /* owned; attempts that have chunks, ascending */
    int32_t num_with_chunks;
};

int metric_visible_read(struct store *s, const struct store_metric_range *range,
                        struct metric_visible *out, struct error *err);
void metric_visible_free(struct metric_visible *v);
/* The attempt's last visible step in the range; below v->from: none. */
int64_t metric_visible_last(const struct metric_visible *v, int32_t attempt);

#endif
