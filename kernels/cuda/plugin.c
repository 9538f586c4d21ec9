/* What the loader finds: the CUDA backend's device, operations and communicators. */
#include "kernels/plugin.h"

#include <stdio.h>

#include <cuda_runtime_api.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/times.h"

/* runtime/comm/comm_nccl.c, which is built into the plug-in. */
extern const struct comm_provider comm_nccl_provider;

static char name[32];

static struct plugin cuda_plugin = {
    .abi = TANDEM_PLUGIN_ABI,
    .size = sizeof cuda_plugin,
    .name = name,
    .count = cuda_device_count,
    .open = cuda_device_open,
#ifdef TANDEM_HAS_NCCL
    .comm = &comm_nccl_provider,
#endif
};

const struct plugin *tandem_plugin_entry(void);

const struct plugin *tandem_plugin_entry(void)
{
    snprintf(name, sizeof name, "CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    cuda_plugin.kernels = times_kernels();
    return &cuda_plugin;
}
