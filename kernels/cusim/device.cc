/* Devices, their properties, and errors. They say that they are of compute capability 9.0. */
#include <stdlib.h>
#include <string.h>

#include <map>

#include "kernels/cusim/control.h"
#include "kernels/cusim/machine.h"
#include "kernels/cusim/memory.h"

namespace cusim
{

static thread_local cudaError_t last_error;
static thread_local int device;
static std::map<const void *, int> *dynamic_max;

cudaError_t machine_error(cudaError_t e)
{
    if (e != cudaSuccess) {
        last_error = e;
    }
    return e;
}

int machine_device()
{
    return device;
}

size_t memory_dynamic_max(const void *kernel)
{
    if (!dynamic_max || !dynamic_max->count(kernel)) {
        return SHARED_STATIC_MAX;
    }
    return (size_t)(*dynamic_max)[kernel];
}

static int num_devices()
{
    const char *text = getenv("CUSIM_DEVICES");
    return text ? atoi(text) : 1;
}

static int attribute(enum cudaDeviceAttr a)
{
    switch (a) {
    case cudaDevAttrComputeCapabilityMajor:
        return 9;
    case cudaDevAttrMultiProcessorCount:
        return 4;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMaxThreadsPerBlock:
        return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)SHARED_MAX;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return (int)SHARED_STATIC_MAX;
    default:
        return 0;
    }
}

} // namespace cusim

using namespace cusim;

extern "C" {

cudaError_t cudaGetDeviceCount(int *n)
{
    int num = num_devices();
    if (num == 0) {
        return machine_error(cudaErrorNoDevice);
    }
    *n = num;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int d)
{
    if (d < 0 || d >= num_devices()) {
        return machine_error(cudaErrorInvalidDevice);
    }
    device = d;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *d)
{
    *d = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int)
{
    *value = attribute(a);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    strcpy(p->name, "cusim");
    p->major = attribute(cudaDevAttrComputeCapabilityMajor);
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->warpSize = attribute(cudaDevAttrWarpSize);
    p->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
    p->sharedMemPerBlock = SHARED_STATIC_MAX;
    p->sharedMemPerBlockOptin = SHARED_MAX;
    size_t free_bytes;
    return cudaMemGetInfo(&free_bytes, &p->totalGlobalMem);
}

cudaError_t cudaDriverGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute a, int value)
{
    struct machine_guard guard;
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > SHARED_MAX) {
        return machine_error(cudaErrorInvalidValue);
    }
    if (!dynamic_max) {
        dynamic_max = new std::map<const void *, int>;
    }
    (*dynamic_max)[kernel] = value;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    default:
        return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t e)
{
    return cudaGetErrorName(e);
}

} // extern "C"
