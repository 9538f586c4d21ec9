/* Numbers for people: 12.3k, 1.2 GB, 3m12s. Each writes into out and returns it. */
#ifndef TANDEM_CLIENTS_CLI_HUMAN_H
#define TANDEM_CLIENTS_CLI_HUMAN_H

#include <stddef.h>
#include <stdint.h>

enum { HUMAN_MAX = 32 };

/* 950, 12.3k, 4.56M, 1.24B */
const char *human_count(char out[HUMAN_MAX], double n);
/* 1.85T, 54.6 MFLOP: three digits, and the unit (which may be "") */
const char *human_metric(char out[HUMAN_MAX], double n, const char *unit);
/* 512 B, 1.2 GB (powers of 1000) */
const char *human_bytes(char out[HUMAN_MAX], double bytes);
/* 0.4s, 42s, 3m12s, 2h05m, 3d04h */
const char *human_duration(char out[HUMAN_MAX], double seconds);
/* Local time: 14:03:12 today, else 2026-03-01 14:03. */
const char *human_time(char out[HUMAN_MAX], int64_t time_us, int64_t now_us);
/* A loss or a norm: five significant digits; "nan" and "inf" as words. */
const char *human_value(char out[HUMAN_MAX], double v);

/* Columns that UTF-8 text takes on a terminal. */
size_t human_width(const char *text);

#endif
