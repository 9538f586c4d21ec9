/* This host as a node of a cluster: its cores, memory and CPU model by hwloc, its GPUs by the
 * driver's library. */
#ifndef TANDEM_RUNTIME_PROBE_HOST_H
#define TANDEM_RUNTIME_PROBE_HOST_H

#include "proto/names.h"

/* Fills reply->host, and in notes what is wrong with the host: a GPU or driver that doesn't answer.
 * devices are the GPUs; CPU devices are the caller's to make of cores. */
void host_discover(ProbeReply *reply);
/* The same without cores, memory and processor. */
void host_discover_gpus(ProbeReply *reply);

#endif
