#include "server/device_events.h"

#include <stdio.h>

#include "base/log.h"
#include "base/printable.h"
#include "plan/device_faults.h"
#include "server/draining.h"

/* Of an attempt, of faults and of the rest; tandem-node itself says no more than this. */
#define EVENTS_MAX 200

/* In the fabric; -1: none that the job has. */
static int32_t find_device(struct controller *c, const struct job *j, const DeviceEvent *e)
{
    const struct fabric *f = controller_topology(c)->fabric;
    int32_t node = e->node && e->has_device && e->device >= 0 ? fabric_find_node(f, e->node) : -1;
    int32_t device = node >= 0 ? fabric_find_device(f, e->node, e->device) : -1;
    bool is_held = device >= 0 && j->devices.now && device_set_has(j->devices.now, device);
    return is_held && !f->types[f->devices[device].type].is_cpu ? device : -1;
}

static bool is_too_many(struct job *j, bool is_hard)
{
    if (j->device_events_attempt != j->row.attempt.number) {
        j->device_events_attempt = j->row.attempt.number;
        j->num_device_events[0] = j->num_device_events[1] = 0;
    }
    return j->num_device_events[is_hard]++ >= EVENTS_MAX;
}

int device_events_take(struct controller *c, struct job *j, const DeviceEvent *e, struct error *err)
{
    char words[200], name[80], reason[240];
    int32_t device = find_device(c, j, e);
    if (device < 0 || !e->has_kind) {
        log_warn("job %lld: news of a device that it doesn't have", (long long)j->row.id);
        return 0;
    }
    bool is_hard = device_faults_is_hard(e);
    if (is_too_many(j, is_hard)) {
        return 0;
    }
    device_faults_words(e, words, sizeof words);
    printable_utf8(words);
    snprintf(name, sizeof name, "%.64s:%d", e->node, e->device);
    snprintf(reason, sizeof reason, "%s, in job %lld", words, (long long)j->row.id);
    if (controller_event(c, j, "device", "worker", j->row.step, err, "%s%s%.99s%s: %s%s", name,
                         e->uuid && *e->uuid ? " (" : "", e->uuid ? e->uuid : "",
                         e->uuid && *e->uuid ? ")" : "", words,
                         is_hard ? "; drained until someone has looked at it" : "") != 0) {
        return -1;
    }
    if (!is_hard) {
        return 0;
    }
    log_warn("%s is drained: %s", name, reason);
    return draining_by_fault(c, device, j->row.id, reason, err);
}
