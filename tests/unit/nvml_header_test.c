/* What nvml_library.h says of NVIDIA's library, against NVIDIA's own header: sizes and places of
 * fields, values, and the arguments of each function. The compiler is the test; built where the
 * header is found. */
#include <nvml.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/probe/nvml_library.h"

/* Some are called deprecated: we call them where nothing newer does the same for older drivers. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define SAME_PLACE(ours, field, theirs, name)                                                      \
    _Static_assert(offsetof(struct ours, field) == offsetof(theirs, name), #field);                \
    _Static_assert(sizeof(((struct ours *)0)->field) == sizeof(((theirs *)0)->name), #field)
/* The library fills in as much as it knows, and no more than there is room. */
#define HAS_ROOM(ours, theirs)                                                                     \
    _Static_assert(sizeof(theirs) <= sizeof(struct ours), #ours);                                  \
    _Static_assert(offsetof(struct ours, room) <= sizeof(theirs), #ours)

SAME_PLACE(nvml_memory, total, nvmlMemory_t, total);
SAME_PLACE(nvml_memory, free, nvmlMemory_t, free);
SAME_PLACE(nvml_memory, used, nvmlMemory_t, used);
HAS_ROOM(nvml_memory, nvmlMemory_t);

SAME_PLACE(nvml_pci_info, bus_id_legacy, nvmlPciInfo_t, busIdLegacy);
SAME_PLACE(nvml_pci_info, domain, nvmlPciInfo_t, domain);
SAME_PLACE(nvml_pci_info, bus, nvmlPciInfo_t, bus);
SAME_PLACE(nvml_pci_info, device, nvmlPciInfo_t, device);
SAME_PLACE(nvml_pci_info, pci_device_id, nvmlPciInfo_t, pciDeviceId);
SAME_PLACE(nvml_pci_info, pci_subsystem_id, nvmlPciInfo_t, pciSubSystemId);
SAME_PLACE(nvml_pci_info, bus_id, nvmlPciInfo_t, busId);
HAS_ROOM(nvml_pci_info, nvmlPciInfo_t);

SAME_PLACE(nvml_fabric_info, cluster_uuid, nvmlGpuFabricInfo_t, clusterUuid);
SAME_PLACE(nvml_fabric_info, status, nvmlGpuFabricInfo_t, status);
SAME_PLACE(nvml_fabric_info, clique, nvmlGpuFabricInfo_t, cliqueId);
SAME_PLACE(nvml_fabric_info, state, nvmlGpuFabricInfo_t, state);
HAS_ROOM(nvml_fabric_info, nvmlGpuFabricInfo_t);

SAME_PLACE(nvml_event, device, nvmlEventData_t, device);
SAME_PLACE(nvml_event, type, nvmlEventData_t, eventType);
SAME_PLACE(nvml_event, data, nvmlEventData_t, eventData);
SAME_PLACE(nvml_event, gpu_instance, nvmlEventData_t, gpuInstanceId);
SAME_PLACE(nvml_event, compute_instance, nvmlEventData_t, computeInstanceId);
HAS_ROOM(nvml_event, nvmlEventData_t);

#define SAME_VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)

SAME_VALUE(NVML_OK, NVML_SUCCESS);
SAME_VALUE(NVML_TIMEOUT, NVML_ERROR_TIMEOUT);
SAME_VALUE(NVML_LOST, NVML_ERROR_GPU_IS_LOST);
SAME_VALUE(NVML_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
SAME_VALUE(NVML_LINK_UP, NVML_FEATURE_ENABLED);
SAME_VALUE(NVML_REMOTE_GPU, NVML_NVLINK_DEVICE_TYPE_GPU);
SAME_VALUE(NVML_REMOTE_SWITCH, NVML_NVLINK_DEVICE_TYPE_SWITCH);
SAME_VALUE(NVML_FABRIC_COMPLETED, NVML_GPU_FABRIC_STATE_COMPLETED);
SAME_VALUE(NVML_SCOPE_NODE, NVML_AFFINITY_SCOPE_NODE);
SAME_VALUE(NVML_SENSOR_GPU, NVML_TEMPERATURE_GPU);
SAME_VALUE(NVML_LIMIT_SLOWDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
SAME_VALUE(NVML_ECC_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME_VALUE(NVML_ECC_VOLATILE, NVML_VOLATILE_ECC);
SAME_VALUE(NVML_EVENT_DOUBLE_BIT, nvmlEventTypeDoubleBitEccError);
SAME_VALUE(NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
SAME_VALUE(NVML_SLOW_HARDWARE, nvmlClocksThrottleReasonHwSlowdown);
SAME_VALUE(NVML_SLOW_HEAT,
           nvmlClocksThrottleReasonSwThermalSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown);
SAME_VALUE(NVML_SLOW_POWER, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

/* We pass ints where it has enums: they are as large. */
_Static_assert(sizeof(nvmlReturn_t) == sizeof(int), "nvmlReturn_t");
_Static_assert(sizeof(nvmlEnableState_t) == sizeof(unsigned), "nvmlEnableState_t");
_Static_assert(sizeof(nvmlIntNvLinkDeviceType_t) == sizeof(unsigned), "nvmlIntNvLinkDeviceType_t");
_Static_assert(sizeof(nvmlMemoryErrorType_t) == sizeof(int), "nvmlMemoryErrorType_t");
_Static_assert(sizeof(nvmlEccCounterType_t) == sizeof(int), "nvmlEccCounterType_t");
_Static_assert(sizeof(nvmlTemperatureSensors_t) == sizeof(int), "nvmlTemperatureSensors_t");
_Static_assert(sizeof(nvmlTemperatureThresholds_t) == sizeof(int), "nvmlTemperatureThresholds_t");
_Static_assert(sizeof(nvmlDevice_t) == sizeof(nvml_handle), "nvmlDevice_t");
_Static_assert(sizeof(nvmlEventSet_t) == sizeof(nvml_events), "nvmlEventSet_t");

/* Each function's arguments once, with the types of either side. */
#define FUNCTIONS(F, RC, DEV, SET, MEMORY, PCI, FABRIC, EVENT, SWITCH, REMOTE, KIND, SINCE,        \
                  SENSOR, LIMIT, SCOPE)                                                            \
    F(init, nvmlInit_v2, RC, (void))                                                               \
    F(shutdown, nvmlShutdown, RC, (void))                                                          \
    F(error_string, nvmlErrorString, const char *, (RC))                                           \
    F(driver, nvmlSystemGetDriverVersion, RC, (char *, unsigned))                                  \
    F(count, nvmlDeviceGetCount_v2, RC, (unsigned *))                                              \
    F(handle, nvmlDeviceGetHandleByIndex_v2, RC, (unsigned, DEV *))                                \
    F(name, nvmlDeviceGetName, RC, (DEV, char *, unsigned))                                        \
    F(uuid, nvmlDeviceGetUUID, RC, (DEV, char *, unsigned))                                        \
    F(capability, nvmlDeviceGetCudaComputeCapability, RC, (DEV, int *, int *))                     \
    F(ecc_mode, nvmlDeviceGetEccMode, RC, (DEV, SWITCH *, SWITCH *))                               \
    F(near_memory, nvmlDeviceGetMemoryAffinity, RC, (DEV, unsigned, unsigned long *, SCOPE))       \
    F(memory, nvmlDeviceGetMemoryInfo, RC, (DEV, MEMORY *))                                        \
    F(pci, nvmlDeviceGetPciInfo_v3, RC, (DEV, PCI *))                                              \
    F(link_state, nvmlDeviceGetNvLinkState, RC, (DEV, unsigned, SWITCH *))                         \
    F(link_type, nvmlDeviceGetNvLinkRemoteDeviceType, RC, (DEV, unsigned, REMOTE *))               \
    F(link_pci, nvmlDeviceGetNvLinkRemotePciInfo_v2, RC, (DEV, unsigned, PCI *))                   \
    F(fabric, nvmlDeviceGetGpuFabricInfo, RC, (DEV, FABRIC *))                                     \
    F(ecc_errors, nvmlDeviceGetTotalEccErrors, RC, (DEV, KIND, SINCE, unsigned long long *))       \
    F(remapped, nvmlDeviceGetRemappedRows, RC,                                                     \
      (DEV, unsigned *, unsigned *, unsigned *, unsigned *))                                       \
    F(throttle, nvmlDeviceGetCurrentClocksEventReasons, RC, (DEV, unsigned long long *))           \
    F(throttle, nvmlDeviceGetCurrentClocksThrottleReasons, RC, (DEV, unsigned long long *))        \
    F(temperature, nvmlDeviceGetTemperature, RC, (DEV, SENSOR, unsigned *))                        \
    F(temperature_limit, nvmlDeviceGetTemperatureThreshold, RC, (DEV, LIMIT, unsigned *))          \
    F(events_new, nvmlEventSetCreate, RC, (SET *))                                                 \
    F(events_add, nvmlDeviceRegisterEvents, RC, (DEV, unsigned long long, SET))                    \
    F(events_wait, nvmlEventSetWait_v2, RC, (SET, EVENT *, unsigned))                              \
    F(events_free, nvmlEventSetFree, RC, (SET))

#define THEIRS(field, name, result, arguments)                                                     \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), #name);
#define OURS(field, name, result, arguments)                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((struct nvml_library *)0)->field),     \
                                                result(*) arguments),                              \
                   #name);

FUNCTIONS(THEIRS, nvmlReturn_t, nvmlDevice_t, nvmlEventSet_t, nvmlMemory_t, nvmlPciInfo_t,
          nvmlGpuFabricInfo_t, nvmlEventData_t, nvmlEnableState_t, nvmlIntNvLinkDeviceType_t,
          nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlTemperatureSensors_t,
          nvmlTemperatureThresholds_t, nvmlAffinityScope_t)
FUNCTIONS(OURS, int, nvml_handle, nvml_events, struct nvml_memory, struct nvml_pci_info,
          struct nvml_fabric_info, struct nvml_event, unsigned, unsigned, int, int, int, int,
          unsigned)

/* It was compiled. */
static void our_declarations_are_those_of_the_header(void **state)
{
    (void)state;
    print_message("NVML's header of API version %d\n", NVML_API_VERSION);
    assert_true(NVML_API_VERSION >= 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_declarations_are_those_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
