/* Whose loss or gradient is not finite. Found only when a step has gone wrong, so a good step pays
 * nothing for it. */
#ifndef TANDEM_RUNTIME_RANK_NONFINITE_H
#define TANDEM_RUNTIME_RANK_NONFINITE_H

#include "runtime/rank/state.h"

/* Called on all ranks before the weights of the step are changed: every rank repeats its own share
 * without any sum, tells the others whether it is finite, and err names the first that isn't.
 * Always -1. The same weights and data would give the same again: not worth a retry. */
int nonfinite_explain(struct rank *r, int64_t step, double dloss, const struct step_result *result,
                      struct error *err);

#endif
