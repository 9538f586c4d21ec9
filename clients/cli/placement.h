/* A picture of where the ranks of a job are: leaf switches, fast domains, nodes and their devices.
 *
 *   leaf0  domain alpha  a0 [0 1 . .]  a1 [2 3 . .]
 *   leaf1  b0..b15 [16-143]
 *
 * A number is the rank on that device, a dot a device of the node that the job doesn't have. Nodes
 * that go on alike are one. */
#ifndef TANDEM_CLIENTS_CLI_PLACEMENT_H
#define TANDEM_CLIENTS_CLI_PLACEMENT_H

#include "base/buf.h"
#include "proto/names.h"

/* names: "node:index" by rank. cluster: what there is; NULL = not known, then nodes are listed as
 * they come. Lines begin with indent and are wrapped at width where a node begins. */
void placement_draw(struct buf *out, const ClusterSpec *cluster, const char *const *names,
                    size_t num, const char *indent, size_t width);

#endif
