/* A cluster to plan on without a server: from a file, or this host with one CPU device a core. */
#ifndef TANDEM_CLIENTS_CLI_LOCAL_CLUSTER_H
#define TANDEM_CLIENTS_CLI_LOCAL_CLUSTER_H

#include "base/error.h"
#include "proto/names.h"

/* The text of a ClusterSpec. *out is freed with cluster_spec__free_unpacked. */
int local_cluster_read(const char *path, ClusterSpec **out, struct error *err);

/* The peaks may be 0 (not measured). */
ClusterSpec *local_cluster_new(double peak_flops_fp32, double peak_flops_fp64);

#endif
