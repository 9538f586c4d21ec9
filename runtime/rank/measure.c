#include "runtime/rank/measure.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* Bytes of a line like "RssAnon:	    1234 kB" in /proc/self/status; 0 = there is none. */
static int64_t status_bytes(const char *status, const char *key)
{
    long long kib = 0;
    const char *line = strstr(status, key);
    return line != NULL && sscanf(line + strlen(key), ": %lld kB", &kib) == 1 ? kib * 1024 : 0;
}

static void read_status(char *out, size_t size)
{
    FILE *f = fopen("/proc/self/status", "re");
    size_t len = f != NULL ? fread(out, 1, size - 1, f) : 0;
    out[len] = 0;
    if (f != NULL)
        fclose(f);
}

static bool is_host_memory(const struct rank *r, ArenaKind kind)
{
    return !DEVICE_IS_HOST(r->dev) && (kind == ARENA_HOST || kind == ARENA_SNAPSHOT);
}

/* What was given out of device memory: pieces of the arenas count as they are taken, so that one
 * that is larger than need be doesn't hide behind its own size; what lies beside them counts, too.
 */
static int64_t device_bytes(const struct rank *r)
{
    struct arena_use uses[ARENAS_MAX];
    int64_t bytes = r->dev->ops->mem_peak(r->dev);
    for (int i = arenas_uses(r->arenas, uses) - 1; i >= 0; i--)
        if (!uses[i].shared && uses[i].planned > 0 && !is_host_memory(r, uses[i].kind))
            bytes -= uses[i].planned - uses[i].used;
    return bytes;
}

static int64_t segment_bytes(const struct rank *r)
{
    struct arena_use uses[ARENAS_MAX];
    if (r->host_world == NULL)
        return 0;
    struct comm_host_use use = comm_host_used(r->host_world);
    int64_t bytes = use.area_bytes + use.staging_bytes;
    for (int i = arenas_uses(r->arenas, uses) - 1; i >= 0; i--)
        if (uses[i].shared && uses[i].planned > 0)
            bytes -= uses[i].planned - uses[i].used;
    return bytes;
}

void measure_memory(const struct rank *r, MemoryUse *out)
{
    char status[8192];
    read_status(status, sizeof(status));
    memory_use__init(out);
    out->has_planned_bytes = out->has_used_bytes = out->has_shared_bytes = 1;
    out->has_process_bytes = out->has_high_water_bytes = 1;
    out->planned_bytes = r->plan->memory->total_bytes;
    out->shared_bytes = segment_bytes(r);
    /* Planned is what a device has room for, which on hosts is all that there is. */
    out->used_bytes = device_bytes(r) + (DEVICE_IS_HOST(r->dev) ? out->shared_bytes : 0);
    out->process_bytes =
        status_bytes(status, "RssAnon") + status_bytes(status, "RssFile") + out->shared_bytes;
    out->high_water_bytes = status_bytes(status, "VmHWM");
}

void measure_log(const struct rank *r, const MemoryUse *use)
{
    struct arena_use uses[ARENAS_MAX];
    int num = arenas_uses(r->arenas, uses);
    log_info("memory: planned %.1f MB; given out %.1f MB, %.1f MB of it shared; the process has "
             "%.1f MB",
             (double)use->planned_bytes / 1e6, (double)use->used_bytes / 1e6,
             (double)use->shared_bytes / 1e6, (double)use->process_bytes / 1e6);
    for (int i = 0; i < num; i++)
        log_debug("memory: %lld of %lld bytes for %s", (long long)uses[i].used,
                  (long long)uses[i].planned, arenas_kind_word(uses[i].kind));
}
