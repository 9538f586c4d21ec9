/* What a rank really takes, measured apart from what was planned for it. */
#ifndef TANDEM_RUNTIME_RANK_MEASURE_H
#define TANDEM_RUNTIME_RANK_MEASURE_H

#include "runtime/rank/state.h"

/* So far; the plan's estimate beside it. Cheap: reads /proc/self/status. */
void measure_memory(const struct rank *r, MemoryUse *out);
/* The same as a line in the log; for those who look for mistakes (TANDEM_LOG=debug) each piece that
 * the plan has, too. */
void measure_log(const struct rank *r, const MemoryUse *use);

#endif
