/* GPUs of this host as devices: type words, fast domains. */
#ifndef TANDEM_RUNTIME_PROBE_GPUS_H
#define TANDEM_RUNTIME_PROBE_GPUS_H

#include "proto/names.h"
#include "runtime/probe/nvml.h"

#define GPUS_TYPE_MAX 65

/* "NVIDIA H100 80GB HBM3" -> "h100", "NVIDIA H100 PCIe" -> "h100-pcie": a known type whose words
 * all stand in the name (device_types_match); else the name made a word: "geforce-gtx-1080". */
void gpus_type(const char *name, char out[GPUS_TYPE_MAX]);

/* Adds a device for each GPU to node, which has its name. GPUs of one part of a fabric are in one
 * domain, whatever host they are in; else those that NVLinks connect, here; else each is its own.
 * Where all of them are in one domain of this host alone, it has no name: the node is it. */
void gpus_add(NodeInfo *node, const struct nvml_gpu *gpus, int32_t num);

#endif
