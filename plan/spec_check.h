/* The only validation of a JobSpec: ranges, words, combinations; then every default is filled in,
 * so that the stored spec is complete. Errors name the field as the user wrote it
 * ("training.micro_batch_size: ...") and the mend. A field that is set to what isn't built yet is
 * refused by name. */
#ifndef TANDEM_PLAN_SPEC_CHECK_H
#define TANDEM_PLAN_SPEC_CHECK_H

#include "base/error.h"
#include "plan/spec_unbuilt.h"
#include "proto/names.h"

/* spec was unpacked by protobuf-c (its strings and messages are on the default allocator); what is
 * filled in comes from there too. On error spec may be partly filled in. */
int spec_check(JobSpec *spec, struct error *err);

/* The same for a job that is only to be planned: what isn't built is noted in unbuilt (which is
 * empty before and freed by the caller, also after an error) and not refused, where a plan can be
 * made without it. */
int spec_check_plan(JobSpec *spec, struct spec_unbuilt *unbuilt, struct error *err);

/* Of a checked spec: low 250, normal 500, high 750, or the number. */
int32_t spec_priority(const JobSpec *spec);
/* Of a checked spec: steps between checkpoints; 0 = only at the end, -1 = auto (plans only). */
int64_t spec_checkpoint_interval(const JobSpec *spec);
/* Of a checked spec: the layout (never auto). */
const ParallelSpec *spec_layout(const JobSpec *spec);

#endif
