/* What a parallel layout has to keep to, dimension by dimension: the rules between the fields of a
 * job, and those that need the model. An error names the field and the nearest values that do. */
#ifndef TANDEM_PLAN_LAYOUT_RULES_H
#define TANDEM_PLAN_LAYOUT_RULES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "proto/names.h"

/* Of a spec whose fields are in range, with every default filled in. */
int layout_rules_check(const JobSpec *spec, struct error *err);
int layout_rules_check_model(const JobSpec *spec, const ModelConfig *config, struct error *err);

/* Micro-batches of one data rank in a step. */
int64_t layout_micro_batches(const JobSpec *spec);
/* Chunks of layers that one rank holds: virtual_stages; two under dualpipe; 1 without a pipeline.
 */
int64_t layout_chunks(const ParallelSpec *layout);
/* Does more than one stage run this schedule? */
bool layout_schedule_is(const ParallelSpec *layout, const char *schedule);
/* Data ranks among which ZeRO shares; 1 = nothing is shared. */
int64_t layout_shards(const ParallelSpec *layout);

/* For people: "data 4, tensor 2 with sequence parallel, ZeRO-3 over 2 data ranks". Nothing where
 * there is one rank. */
void layout_words(struct buf *out, const ParallelSpec *layout);

#endif
