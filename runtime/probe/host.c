#include "runtime/probe/host.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "runtime/probe/gpus.h"

#define NOTES_MAX (NVML_MAX_GPUS + 8)

static void add_note(void *where, const char *words)
{
    ProbeReply *reply = where;
    if (reply->n_notes >= NOTES_MAX) {
        return;
    }
    reply->notes = realloc(reply->notes, (reply->n_notes + 1) * sizeof *reply->notes);
    char *copy = strdup(words);
    ASSERT(reply->notes && copy);
    reply->notes[reply->n_notes++] = copy;
}

/* Printable ASCII of text, NULL for none. */
static char *word_copy(const char *text)
{
    char *copy = text && text[0] ? strndup(text, 200) : NULL;
    for (char *c = copy; c && *c; c++) {
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    }
    return copy;
}

/* Logical processors that this process may run on: what its ranks can use. */
static int32_t usable_cores(hwloc_topology_t topology)
{
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    ASSERT(bound);
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    if (hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_PROCESS) == 0) {
        hwloc_bitmap_and(bound, bound, allowed);
    } else {
        hwloc_bitmap_copy(bound, allowed);
    }
    int num = hwloc_bitmap_weight(bound);
    hwloc_bitmap_free(bound);
    return num > 0 ? num : 1;
}

static void read_hwloc(NodeInfo *node, ProbeReply *reply)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) {
        add_note(reply, "hwloc could not be started");
        return;
    }
    if (hwloc_topology_load(topology) == 0) {
        hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
        node->has_cores = 1;
        node->cores = usable_cores(topology);
        node->has_mem_bytes = 1;
        node->mem_bytes = (int64_t)hwloc_get_root_obj(topology)->total_memory;
        node->cpu_model = word_copy(package ? hwloc_obj_get_info_by_name(package, "CPUModel") : "");
    } else {
        add_note(reply, "hwloc could not look at this host");
    }
    hwloc_topology_destroy(topology);
}

static char *read_boot_id(void)
{
    char id[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (fgets(id, sizeof id, f)) {
            id[strcspn(id, "\n")] = 0;
        }
        fclose(f);
    }
    return word_copy(id);
}

static NodeInfo *new_host(void)
{
    NodeInfo *node = malloc(sizeof *node);
    char name[65] = "";
    ASSERT(node);
    node_info__init(node);
    if (gethostname(name, sizeof name - 1) != 0 || !name[0]) {
        memcpy(name, "localhost", sizeof "localhost");
    }
    node->name = word_copy(name);
    node->boot_id = read_boot_id();
    return node;
}

static void read_gpus(ProbeReply *reply)
{
    struct nvml_gpu *gpus = calloc(NVML_MAX_GPUS, sizeof *gpus);
    char driver[NVML_DRIVER_MAX];
    ASSERT(gpus);
    gpus_add(reply->host, gpus, nvml_list(gpus, driver, add_note, reply));
    reply->host->driver = word_copy(driver);
    free(gpus);
}

void host_discover(ProbeReply *reply)
{
    reply->host = new_host();
    read_hwloc(reply->host, reply);
    read_gpus(reply);
}

void host_discover_gpus(ProbeReply *reply)
{
    reply->host = new_host();
    read_gpus(reply);
}
