/* The model's passes over some units, in compute; where they may, as captured work (replay.h).
 *
 * They may on a device that has graphs, where no rank talks to another within a pass: with one
 * tensor rank. TANDEM_CUDA_GRAPHS in the environment is a switch for it: 0 or 1 (also
 * where it isn't set). */
#ifndef TANDEM_RUNTIME_RANK_PASSES_H
#define TANDEM_RUNTIME_RANK_PASSES_H

#include "runtime/rank/state.h"

/* Sets r->replay, NULL where passes are launched piece by piece. */
int passes_open(struct rank *r, struct error *err);
/* As model_forward and model_backward have it. */
int pass_forward(struct rank *r, int32_t unit_begin, int32_t unit_end, double dloss,
                 struct error *err);
int pass_backward(struct rank *r, int32_t unit_begin, int32_t unit_end, bool is_first,
                  struct error *err);

#endif
