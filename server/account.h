/* Device-time: devices x how long an attempt held them, in microseconds. Where this controller saw
 * both ends it goes by the clock that never goes back, within whose rounding the clock on the wall
 * is taken; else by the clock on the wall, and is never less than what was seen, nor negative.
 * Pure. */
#ifndef TANDEM_SERVER_ACCOUNT_H
#define TANDEM_SERVER_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/store/rows.h"

#define ACCOUNT_MOST_US ATTEMPT_DEVICE_US_MAX

struct account_span {
    bool whole;         /* since_ms is its beginning */
    int64_t since_ms;   /* seen since then; monotonic */
    int64_t created_us; /* its beginning, wall */
    int64_t now_ms, wall_us;
};

/* How long it has been held. */
int64_t account_held_us(const struct account_span *s);
/* devices x held, at most ACCOUNT_MOST_US. */
int64_t account_device_us(int64_t devices, int64_t held_us);

#endif
