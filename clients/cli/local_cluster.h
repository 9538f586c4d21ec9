/* This host as a cluster to plan on without a server: one CPU device a core. */
#ifndef TANDEM_CLIENTS_CLI_LOCAL_CLUSTER_H
#define TANDEM_CLIENTS_CLI_LOCAL_CLUSTER_H

#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

/* That this program may run on. */
int32_t local_num_cores(void);
/* The peaks may be 0 (not measured). */
ClusterSpec *local_cluster_new(double peak_flops_fp32, double peak_flops_fp64);

#endif
