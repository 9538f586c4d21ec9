#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/printable.h"

static const char *log_name = "tandem";
static enum log_level log_min = LOG_INFO_LEVEL;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *name)
{
    log_name = name;
    const char *want = getenv("TANDEM_LOG");
    for (int i = 0; want && i < 4; i++) {
        if (strcmp(want, level_names[i]) == 0) {
            log_min = (enum log_level)i;
        }
    }
}

void log_write(enum log_level level, const char *fmt, ...)
{
    if (level < log_min) {
        return;
    }
    char line[2048];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s %s: ", now.tv_nsec / 1000000,
                          level_names[level], log_name);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    size_t head = n;
    n += m < 0 ? 0 : (size_t)m < sizeof line - n - 1 ? (size_t)m : sizeof line - n - 2;
    printable_line(line + head, n - head); /* names and paths of users may be in it */
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written; /* nowhere left to say it */
}
