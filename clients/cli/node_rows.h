/* Nodes and their devices as tables. Nodes that follow each other by number and are alike in all
 * that is shown are one row: "dgx[0-2047]". */
#ifndef TANDEM_CLIENTS_CLI_NODE_ROWS_H
#define TANDEM_CLIENTS_CLI_NODE_ROWS_H

#include "clients/cli/table.h"
#include "proto/names.h"

/* A row a node, or a run of them. A device whose job runs on although it is drained counts as used
 * and as drained. */
struct table *node_rows_new(const ClusterSpec *c);
/* A row a device. */
struct table *node_rows_devices(const NodeInfo *const *nodes, size_t num_nodes);

struct node_counts {
    int64_t devices, free, used, claimed, drained;
};
void node_rows_count(const NodeInfo *n, struct node_counts *sum);

#endif
