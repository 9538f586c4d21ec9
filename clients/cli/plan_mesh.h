/* How a plan lies on its cluster, drawn: a line for each fast domain with its nodes and the ranks
 * on them; how each axis hangs together; what the placement's score says. */
#ifndef TANDEM_CLIENTS_CLI_PLAN_MESH_H
#define TANDEM_CLIENTS_CLI_PLAN_MESH_H

#include "base/buf.h"
#include "proto/names.h"

/* Lines that all begin with indent; the first one with head in its place (of the same width).
 *   east-fast: east0 [0 1 2 3] east1 [4 5 . .]   data 0, tensor 0-3
 * A dot is a device that the plan doesn't use. */
void plan_mesh_draw(struct buf *out, const Plan *plan, const ClusterSpec *cluster, const char *head,
                    const char *indent);
/* One line an axis above 1: size, groups, the worst link. Nothing where that isn't known. */
void plan_mesh_axes(struct buf *out, const Plan *plan, const char *head, const char *indent);
/* "all in one leaf; ..."; nothing without a score. */
void plan_mesh_score(struct buf *out, const Plan *plan, const char *head);

#endif
