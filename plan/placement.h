/* Which device each rank runs on, and what follows from it: threads a rank, peak, axis groups,
 * memory. */
#ifndef TANDEM_PLAN_PLACEMENT_H
#define TANDEM_PLAN_PLACEMENT_H

#include "base/error.h"
#include "plan/place.h"
#include "plan/plan.h"

/* Fills plan->placement (by rank, owned by the plan) from in->placement, or where place_find puts
 * the gang on those devices of the cluster that are neither held nor drained; local ranks are
 * counted here. Then threads_per_rank, peak_flops, groups and score. plan->mesh and plan->backend
 * are set; plan->memory may be: then only devices that are large enough are taken, if there are.
 * f: of in->cluster. */
int placement_build(Plan *plan, const struct plan_input *in, const struct fabric *f,
                    struct error *err);

/* What a job asks for, by its layout, resources and backend (ref, cpu, cuda; others and NULL: any
 * device). Strings are borrowed from both. False: it has no layout that was chosen. */
bool placement_request(struct place_request *out, const JobSpec *spec, const char *backend,
                       int64_t mem_bytes);

/* plan->groups: each axis above 1. devices: by rank. */
void placement_set_groups(Plan *plan, const struct fabric *f, const struct place_request *r,
                          const int32_t *devices);

/* Does every rank's estimate fit the memory of its device, and on CPU devices those of a node
 * together into the node's? A size of 0 is not known and not checked. */
int placement_check_memory(const Plan *plan, const struct fabric *f, struct error *err);

/* ---- placement_gpu.c ---- */

/* r finds no place: fails where it would, were its GPUs not too old for the precision. devices: for
 * as many as the gang has; what is in there then is of no use. */
int placement_refuse_old(const struct free_map *m, const struct place_request *r, int32_t *devices,
                         struct error *err);
/* Restricts r to one node, and to that whose GPUs a job can be started on, if that is known. */
int placement_use_gpu_node(struct place_request *r, const struct plan_input *in, struct error *err);
/* Do the devices suit the backend? GPUs of more than one node are noted as not built, or refused.
 */
int placement_check_gpus(Plan *plan, const struct plan_input *in, const struct fabric *f,
                         const int32_t *devices, struct error *err);

#endif
