/* NVIDIA's management library as we call it (private to nvml*.c). Functions that a library lacks
 * are NULL.
 *
 * Its interface, as far as we need it, after its documentation (docs.nvidia.com/deploy/nvml-api);
 * nvml_header_test holds it against the header, where there is one. Structs are followed by room: a
 * newer library may know them larger. */
#ifndef TANDEM_RUNTIME_PROBE_NVML_LIBRARY_H
#define TANDEM_RUNTIME_PROBE_NVML_LIBRARY_H

#include <stdbool.h>

typedef struct nvml_device *nvml_handle;
typedef struct nvml_event_set *nvml_events;

enum { NVML_OK = 0, NVML_TIMEOUT = 10, NVML_LOST = 15, NVML_RESET_REQUIRED = 16 };
enum { NVML_LINK_UP = 1, NVML_REMOTE_GPU = 0, NVML_REMOTE_SWITCH = 2, NVML_FABRIC_COMPLETED = 3 };
enum { NVML_SCOPE_NODE = 0, NVML_SENSOR_GPU = 0, NVML_LIMIT_SLOWDOWN = 1 };
enum { NVML_ECC_UNCORRECTED = 1, NVML_ECC_VOLATILE = 0 };

#define NVML_EVENT_DOUBLE_BIT 0x2ull
#define NVML_EVENT_XID 0x8ull
/* Reasons for slower clocks. */
#define NVML_SLOW_HARDWARE 0x8ull
#define NVML_SLOW_HEAT (0x20ull | 0x40ull)
#define NVML_SLOW_POWER 0x80ull

struct nvml_memory {
    unsigned long long total, free, used;
    char room[64];
};
struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
    char room[64];
};
struct nvml_fabric_info {
    unsigned char cluster_uuid[16];
    int status;
    unsigned clique;
    unsigned char state;
    char room[64];
};
struct nvml_event {
    nvml_handle device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
    char room[64];
};

struct nvml_library {
    void *so;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int rc);
    int (*driver)(char *version, unsigned size);
    int (*count)(unsigned *num);
    int (*handle)(unsigned index, nvml_handle *h);
    int (*name)(nvml_handle h, char *name, unsigned size);
    int (*uuid)(nvml_handle h, char *uuid, unsigned size);
    int (*capability)(nvml_handle h, int *major, int *minor);
    int (*ecc_mode)(nvml_handle h, unsigned *current, unsigned *pending);
    int (*near_memory)(nvml_handle h, unsigned size, unsigned long *nodes, unsigned scope);
    int (*memory)(nvml_handle h, struct nvml_memory *m);
    int (*pci)(nvml_handle h, struct nvml_pci_info *p);
    int (*link_state)(nvml_handle h, unsigned link, unsigned *state);
    int (*link_type)(nvml_handle h, unsigned link, unsigned *type);
    int (*link_pci)(nvml_handle h, unsigned link, struct nvml_pci_info *p);
    int (*fabric)(nvml_handle h, struct nvml_fabric_info *info);
    /* Of its health. */
    int (*ecc_errors)(nvml_handle h, int kind, int since, unsigned long long *num);
    int (*remapped)(nvml_handle h, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                    unsigned *failed);
    int (*throttle)(nvml_handle h, unsigned long long *reasons);
    int (*temperature)(nvml_handle h, int sensor, unsigned *degrees);
    int (*temperature_limit)(nvml_handle h, int which, unsigned *degrees);
    int (*events_new)(nvml_events *out);
    int (*events_add)(nvml_handle h, unsigned long long types, nvml_events set);
    int (*events_wait)(nvml_events set, struct nvml_event *out, unsigned timeout_ms);
    int (*events_free)(nvml_events set);
};

/* Opens and initialises it. False: there is none, or it is of no use; why: in words, "" where there
 * is no driver at all, which isn't wrong. */
bool nvml_open(struct nvml_library *lib, char why[256]);
void nvml_close(struct nvml_library *lib);

const char *nvml_words(const struct nvml_library *lib, int rc);
/* Ends text, makes printable ASCII of it. */
void nvml_clean(char *text, unsigned size);

#endif
