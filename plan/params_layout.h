/* Where each parameter lies in the flat buffers. Private to plan/params*. */
#ifndef TANDEM_PLAN_PARAMS_LAYOUT_H
#define TANDEM_PLAN_PARAMS_LAYOUT_H

#include "plan/params.h"

/* Elements that n take with the padding behind them. */
int64_t params_padded(int64_t n);

/* Offsets, buckets and flat_numel of a table whose rows are there. */
int params_lay_out(struct param_table *t, const Stage *stage, int32_t stage_idx, struct error *err);

#endif
