/* cudnn_graph_test LIBRARY: the real cuDNN takes the graphs of attention as one thing and proposes
 * engines for it. It needs no GPU: it is told of one. */
#include <stdio.h>

#include "kernels/cuda/cudnn_graph.h"

/* An H200's properties, as CUDA gives them. */
static const char device_json[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, "
    "\"memClockRateKHz\": 3201000, \"l2CacheSize\": 62914560, \"deviceName\": \"NVIDIA H200\", "
    "\"deviceVer\": 900, \"driverVer\": 13000, \"cudaDeviceId\": 0, "
    "\"totalGlobalMem\": 150754820096}";

static int check(const struct cudnn_api *api, const struct cudnn_shape *s)
{
    struct error err;
    struct cudnn_graph g;
    cudnnBackendDescriptor_t device;
    int64_t num = 0;
    int rc = cudnn_graph_build(&g, api, NULL, s, &err) ||
             cudnn_graph_device(&g, device_json, &device, &err) ||
             cudnn_graph_engines(&g, device, &num, &err);
    printf("%s of %lld x %lld, %lld/%lld heads of %lld: %d operations, %d descriptors, ",
           s->backward ? "backward" : "forward", (long long)s->b, (long long)s->t, (long long)s->h,
           (long long)s->kv, (long long)s->e, g.num_ops, g.num_all);
    if (rc) {
        printf("FAILED: %s\n", err.text);
    } else {
        printf("%lld engines%s\n", (long long)num, num > 0 ? "" : ": FAILED");
    }
    cudnn_graph_free(&g);
    return rc || num == 0;
}

int main(int argc, char **argv)
{
    static const struct cudnn_shape shapes[] = {
        {4, 4096, 32, 8, 128, false}, {1, 1000, 12, 12, 64, false}, {2, 333, 6, 2, 32, false},
        {1, 2048, 8, 1, 96, false},   {2, 77, 4, 4, 80, false},
    };
    struct error err;
    struct cudnn_api api;
    if (argc != 2 || cudnn_api_load(&api, argv[1], &err) != 0) {
        printf("FAILED: %s\n", argc == 2 ? err.text : "which library?");
        return 1;
    }
    int failures = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct cudnn_shape s = shapes[i];
        failures += check(&api, &s);
        s.backward = true;
        failures += check(&api, &s);
    }
    cudnn_api_unload(&api);
    return failures > 0;
}
