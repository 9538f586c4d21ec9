/* GPUs as NVIDIA's management library tells of them: libnvidia-ml.so.1, opened at run time, so that
 * nothing is needed where there is no driver. What it says is bounded and not trusted; what it does
 * to this process, its caller survives. */
#ifndef TANDEM_RUNTIME_PROBE_NVML_H
#define TANDEM_RUNTIME_PROBE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#define NVML_MAX_GPUS 64
#define NVML_MAX_LINKS 18
#define NVML_DRIVER_MAX 81

struct nvml_pci {
    uint32_t domain, bus, device;
};

struct nvml_gpu {
    int32_t index;
    char name[96];     /* printable ASCII: "NVIDIA H100 80GB HBM3" */
    int64_t mem_bytes; /* 0 = not known */
    struct nvml_pci pci;
    bool has_pci;
    char uuid[97];      /* printable ASCII: "GPU-..."; "" = not known */
    int32_t numa_node;  /* of the host's memory that is near; -1 = not known */
    int32_t capability; /* ten times the compute capability; 0 = not known */
    bool has_ecc, ecc;  /* is its memory's error correction on? */
    /* The part of a multi-node NVLink fabric that it is in; false: it is in none, or the driver is
     * too old to say. */
    bool has_fabric;
    uint8_t fabric_uuid[16];
    uint32_t fabric_clique;
    /* Where its NVLinks that are up go: to a switch, or right to other GPUs. */
    bool on_switch;
    int32_t num_peers;
    struct nvml_pci peers[NVML_MAX_LINKS];
};

/* GPUs that answer, by index, and the driver's version ("" = not known); note(where, words) for
 * each thing that is wrong (no driver isn't). */
int32_t nvml_list(struct nvml_gpu gpus[NVML_MAX_GPUS], char driver[NVML_DRIVER_MAX],
                  void (*note)(void *where, const char *words), void *where);

#endif
