/* What happened in a simulation, as lines: the last ones are kept, and all go to stderr where a
 * single seed is looked at. */
#ifndef TANDEM_TESTS_SIM_TRACE_H
#define TANDEM_TESTS_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_TRACE_KEPT 40

void sim_trace_begin(bool loud);
void sim_trace(int64_t now_us, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The kept lines, to stderr. */
void sim_trace_dump(void);

#endif
