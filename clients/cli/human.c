#include "clients/cli/human.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* Three digits or a bit more: 9.99, 12.3, 456. */
static void scaled(char out[HUMAN_MAX], double v, const char *unit)
{
    int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    snprintf(out, HUMAN_MAX, "%.*f%s", digits, v, unit);
}

const char *human_count(char out[HUMAN_MAX], double n)
{
    static const char *const units[] = {"", "k", "M", "B", "T", "P"};
    if (!isfinite(n) || n < 0) {
        snprintf(out, HUMAN_MAX, "-");
        return out;
    }
    int i = 0;
    while (n >= 999.5 && i < 5) {
        n /= 1000;
        i++;
    }
    if (i == 0) {
        snprintf(out, HUMAN_MAX, n == floor(n) || n >= 99.95 ? "%.0f" : "%.1f", n);
    } else {
        scaled(out, n, units[i]);
    }
    return out;
}

const char *human_metric(char out[HUMAN_MAX], double n, const char *unit)
{
    static const char prefixes[] = " kMGTPEZY";
    size_t i = 0;
    while (n >= 999.5 && prefixes[i + 1]) {
        n /= 1000;
        i++;
    }
    snprintf(out, HUMAN_MAX, "%.3g%s%.*s%s", n, *unit ? " " : "", i > 0, &prefixes[i], unit);
    return out;
}

const char *human_bytes(char out[HUMAN_MAX], double bytes)
{
    static const char *const units[] = {" B", " kB", " MB", " GB", " TB", " PB"};
    if (!isfinite(bytes) || bytes < 0) {
        snprintf(out, HUMAN_MAX, "-");
        return out;
    }
    int i = 0;
    while (bytes >= 999.5 && i < 5) {
        bytes /= 1000;
        i++;
    }
    snprintf(out, HUMAN_MAX, i == 0 || bytes >= 99.95 ? "%.0f%s" : "%.1f%s", bytes, units[i]);
    return out;
}

const char *human_duration(char out[HUMAN_MAX], double seconds)
{
    if (!isfinite(seconds) || seconds < 0) {
        snprintf(out, HUMAN_MAX, "-");
        return out;
    }
    if (seconds < 9.95) {
        snprintf(out, HUMAN_MAX, "%.1fs", seconds);
        return out;
    }
    long long s = (long long)(seconds + 0.5);
    if (s < 60) {
        snprintf(out, HUMAN_MAX, "%llds", s);
    } else if (s < 3600) {
        snprintf(out, HUMAN_MAX, "%lldm%02llds", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(out, HUMAN_MAX, "%lldh%02lldm", s / 3600, s / 60 % 60);
    } else {
        snprintf(out, HUMAN_MAX, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    }
    return out;
}

const char *human_time(char out[HUMAN_MAX], int64_t time_us, int64_t now_us)
{
    time_t t = (time_t)(time_us / 1000000), now = (time_t)(now_us / 1000000);
    struct tm tm, today;
    if (time_us <= 0 || !localtime_r(&t, &tm) || !localtime_r(&now, &today)) {
        snprintf(out, HUMAN_MAX, "-");
        return out;
    }
    if (tm.tm_year == today.tm_year && tm.tm_yday == today.tm_yday) {
        strftime(out, HUMAN_MAX, "%H:%M:%S", &tm);
    } else {
        strftime(out, HUMAN_MAX, "%Y-%m-%d %H:%M", &tm);
    }
    return out;
}

const char *human_value(char out[HUMAN_MAX], double v)
{
    if (isnan(v)) {
        snprintf(out, HUMAN_MAX, "nan");
    } else if (fabs(v) >= 0.1 && fabs(v) < 1e5) {
        int digits = fabs(v) >= 1000 ? 1 : fabs(v) >= 100 ? 2 : fabs(v) >= 10 ? 3 : 4;
        snprintf(out, HUMAN_MAX, "%.*f", digits, v);
    } else if (v == 0) {
        snprintf(out, HUMAN_MAX, "0");
    } else if (fabs(v) < 0.1) {
        snprintf(out, HUMAN_MAX, "%.4g", v);
    } else {
        snprintf(out, HUMAN_MAX, "%.3g", v);
    }
    return out;
}

size_t human_width(const char *text)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        n += (*p & 0xC0) != 0x80;
    }
    return n;
}
