/* Opens what a rank needs, in the plan's sizes, and closes it again. */
#ifndef TANDEM_RUNTIME_RANK_WIRING_H
#define TANDEM_RUNTIME_RANK_WIRING_H

#include "runtime/rank/state.h"

/* Everything but the weights' contents. options, plan, idx and report are there already. After a
 * failure wiring_close takes back what was opened. */
int wiring_open(struct rank *r, struct error *err);
void wiring_close(struct rank *r);

/* Where this rank may read. */
struct roots wiring_roots(const struct rank *r);

#endif
