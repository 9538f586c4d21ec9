/* How many targets a step has, over all ranks: the one divisor of its loss, where data can have
 * ignored ones. Where steps are read late, a step's are counted while the step before it runs, so
 * that their sum has long arrived when it is enqueued. */
#ifndef TANDEM_RUNTIME_RANK_COUNT_H
#define TANDEM_RUNTIME_RANK_COUNT_H

#include "runtime/rank/trainer.h"

/* Fills s->dloss and what else was counted. */
int count_targets(struct rank *r, struct step *s, struct error *err);

#endif
