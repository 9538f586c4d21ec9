/* Whose loss or gradient is not finite. Found only when a step has gone wrong, so a good step pays
 * nothing for it. */
#ifndef TANDEM_RUNTIME_RANK_NONFINITE_H
#define TANDEM_RUNTIME_RANK_NONFINITE_H

#include "runtime/rank/trainer.h"

/* Called on all ranks, which have left their weights as they were before the step (the store sees
 * to it, in the steps behind it too): every rank goes through the step once more, looks at its own
 * share of each gradient before that is summed, tells the others what it found, and err names the
 * first that isn't finite. Tensor ranks share every sum of the pass: of those that went wrong
 * together the first is named. Always -1. The same weights and data would give the same again: not
 * worth a retry. */
int nonfinite_explain(struct rank *r, const struct step *s, struct error *err);

#endif
