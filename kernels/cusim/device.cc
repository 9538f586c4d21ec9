/* Devices, their properties, and errors. The environment says what there is: CUSIM_DEVICES=2,
 * CUSIM_CAPABILITY=80 and CUSIM_DRIVER=12040; else one device of compute capability 9.0 and a
 * driver as new as the headers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include "kernels/cusim/machine.h"
#include "kernels/cusim/memory.h"
#include "kernels/cusim/stream.h"

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

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int num_devices()
{
    return number_of("CUSIM_DEVICES", 1);
}

/* As CUDA numbers versions: 12040. */
static int driver_version()
{
    return number_of("CUSIM_DRIVER", CUDART_VERSION);
}

static int attribute(enum cudaDeviceAttr a)
{
    switch (a) {
    case cudaDevAttrComputeCapabilityMajor:
        return number_of("CUSIM_CAPABILITY", 90) / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return number_of("CUSIM_CAPABILITY", 90) % 10;
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
    if (driver_version() / 1000 < CUDART_VERSION / 1000) {
        return machine_error(cudaErrorInsufficientDriver);
    }
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

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int d)
{
    if (d < 0 || d >= num_devices()) {
        return machine_error(cudaErrorInvalidDevice);
    }
    *value = attribute(a);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
    if (d < 0 || d >= num_devices()) {
        return machine_error(cudaErrorInvalidDevice);
    }
    memset(p, 0, sizeof *p);
    strcpy(p->name, "cusim");
    p->major = attribute(cudaDevAttrComputeCapabilityMajor);
    p->minor = attribute(cudaDevAttrComputeCapabilityMinor);
    p->pciBusID = d + 1;
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->warpSize = attribute(cudaDevAttrWarpSize);
    p->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
    p->sharedMemPerBlock = SHARED_STATIC_MAX;
    p->sharedMemPerBlockOptin = SHARED_MAX;
    size_t free_bytes;
    return cudaMemGetInfo(&free_bytes, &p->totalGlobalMem);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int d)
{
    if (d < 0 || d >= num_devices() || bytes < 13) {
        return machine_error(d < 0 || d >= num_devices() ? cudaErrorInvalidDevice
                                                         : cudaErrorInvalidValue);
    }
    snprintf(text, (size_t)bytes, "0000:%02X:00.0", (unsigned)(d + 1) & 0xFF);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = PRIORITY_GREATEST;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *v)
{
    *v = driver_version();
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
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnjoined:
        return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureUnmatched:
        return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorIllegalState:
        return "cudaErrorIllegalState";
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
