/* Spans and moments as people write them: 90d, 1h30m; 2026-03-01. */
#ifndef TANDEM_CLIENTS_CLI_DURATION_H
#define TANDEM_CLIENTS_CLI_DURATION_H

#include <stdbool.h>
#include <stdint.h>

/* "90d", "12h", "30m", "45s", "2w", "1d12h", "0"; at most about a century. A number needs its unit:
 * false. */
bool duration_read(const char *text, int64_t *out_s);

/* So long before now ("2d"), or a day or a minute by local time ("2026-03-01", "2026-03-01 14:00",
 * also with a T between). */
bool duration_read_since(const char *text, int64_t now_us, int64_t *out_us);

#endif
