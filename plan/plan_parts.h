/* Parts of plan_build. Private to plan/plan*. */
#ifndef TANDEM_PLAN_PLAN_PARTS_H
#define TANDEM_PLAN_PLAN_PARTS_H

#include <stdbool.h>

#include "plan/plan.h"

void plan_add_note(Plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void plan_add_notes(Plan *plan);
void plan_add_unbuilt(Plan *plan, const char *line);

/* Does a source go with job and model? facts NULL: as far as can be said without. */
int plan_check_source(const JobSpec *spec, const SourceSpec *source, const DataFacts *facts,
                      const ModelConfig *config, struct error *err);
/* FLOPs of a token: the mean of the positions that it attends to is the data's own. */
void plan_set_flops(Plan *plan);
void plan_add_data_notes(Plan *plan);

/* Parameter table; stages with their layers, flat size, buckets and, where the runtime can run it,
 * actions. */
int plan_set_stages(Plan *plan, struct error *err);
/* Peak where it isn't measured, then cost; none where the peak isn't known. */
void plan_set_cost(Plan *plan, const ClusterSpec *cluster);

/* ref, cpu or cuda, from what the job says and what there is; then the precision, where the job
 * leaves it open. *passed_over is set where it would be cuda, were no GPUs gone. */
int plan_set_backend(Plan *plan, const struct plan_input *in, bool *passed_over, struct error *err);
/* To the note of a plan whose *passed_over was set: a job that names cuda gets those GPUs one day.
 */
void plan_say_gpus_would_do(Plan *plan);

#endif
