#include "tests/sim/sim_trace.h"

#include <stdarg.h>
#include <stdio.h>

static char lines[SIM_TRACE_KEPT][240];
static uint64_t num_lines;
static bool is_loud;

void sim_trace_begin(bool loud)
{
    num_lines = 0;
    is_loud = loud;
}

void sim_trace(int64_t now_us, const char *fmt, ...)
{
    char *line = lines[num_lines++ % SIM_TRACE_KEPT];
    int n = snprintf(line, sizeof lines[0], "%12.6f ", (double)now_us / 1e6);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof lines[0] - (size_t)n, fmt, ap);
    va_end(ap);
    if (is_loud) {
        fprintf(stderr, "%s\n", line);
    }
}

void sim_trace_dump(void)
{
    uint64_t first = num_lines > SIM_TRACE_KEPT ? num_lines - SIM_TRACE_KEPT : 0;
    for (uint64_t i = first; i < num_lines; i++) {
        fprintf(stderr, "%s\n", lines[i % SIM_TRACE_KEPT]);
    }
}
