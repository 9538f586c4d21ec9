#include "clients/cli/duration.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

#define MAX_S ((int64_t)36600 * 86400)

static int64_t seconds_of(char unit)
{
    switch (unit) {
    case 's':
        return 1;
    case 'm':
        return 60;
    case 'h':
        return 3600;
    case 'd':
        return 86400;
    case 'w':
        return 7 * 86400;
    default:
        return 0;
    }
}

bool duration_read(const char *text, int64_t *out_s)
{
    int64_t sum = 0, last = 0;
    if (strcmp(text, "0") == 0) {
        *out_s = 0;
        return true;
    }
    const char *p = text;
    while (*p >= '0' && *p <= '9') {
        int64_t n = 0;
        for (; *p >= '0' && *p <= '9'; p++) {
            n = n * 10 + (*p - '0');
            if (n > MAX_S) {
                return false;
            }
        }
        int64_t unit = seconds_of(*p);
        /* From the large to the small: "30m1h" is a slip. */
        if (unit == 0 || (last && unit >= last)) {
            return false;
        }
        p++;
        last = unit;
        sum += n * unit;
        if (sum > MAX_S) {
            return false;
        }
    }
    *out_s = sum;
    return p != text && *p == 0;
}

bool duration_read_since(const char *text, int64_t now_us, int64_t *out_us)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"};
    int64_t s;
    if (duration_read(text, &s)) {
        *out_us = now_us - s * 1000000;
        return true;
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, forms[i], &tm);
        time_t t = end && *end == 0 ? mktime(&tm) : (time_t)-1;
        if (t >= 0) {
            *out_us = (int64_t)t * 1000000;
            return true;
        }
    }
    return false;
}
