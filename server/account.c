#include "server/account.h"

#include <stdlib.h>

/* 2,000 years: a clock that says so is wrong. */
#define HELD_US_MAX ((int64_t)1 << 56)
/* So far apart, the clock on the wall was set; nearer, its reading is the finer one, and an attempt
 * ends not after the next one on its devices begins. */
#define AGREE_US 1000000

int64_t account_held_us(const struct account_span *s)
{
    int64_t seen_ms = s->now_ms > s->since_ms ? s->now_ms - s->since_ms : 0;
    int64_t seen_us = seen_ms < INT64_MAX / 1000 ? 1000 * seen_ms : INT64_MAX;
    int64_t wall_us;
    seen_us = seen_us < HELD_US_MAX ? seen_us : HELD_US_MAX;
    if (__builtin_sub_overflow(s->wall_us, s->created_us, &wall_us)) {
        return seen_us;
    }
    if (s->whole) {
        bool agree = wall_us >= 0 && llabs(wall_us - seen_us) < AGREE_US;
        return agree ? wall_us : seen_us;
    }
    wall_us = wall_us < HELD_US_MAX ? wall_us : HELD_US_MAX;
    return wall_us > seen_us ? wall_us : seen_us;
}

int64_t account_device_us(int64_t devices, int64_t held_us)
{
    int64_t product;
    if (devices <= 0 || held_us <= 0) {
        return 0;
    }
    return __builtin_mul_overflow(devices, held_us, &product) || product > ACCOUNT_MOST_US
               ? ACCOUNT_MOST_US
               : product;
}
