#include "server/discovery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/cluster_host.h"
#include "server/msg.h"

/* ---- what is missing ---- */

static bool is_reported(DeviceInfo *const *devices, size_t num, int32_t index)
{
    for (size_t i = 0; i < num; i++) {
        if (devices[i]->index == index && devices[i]->type &&
            strcmp(devices[i]->type, "cpu") != 0) {
            return true;
        }
    }
    return false;
}

/* Devices of the node that are looked at: all that are no CPUs, or those of one attempt. */
static bool take(struct topology *t, int32_t node, DeviceInfo *const *devices, size_t num,
                 const struct device_set *only)
{
    const struct fabric *f = t->fabric;
    const struct fabric_part *p = &f->nodes[node];
    bool *missing = calloc((size_t)f->num_devices + 1, sizeof *missing);
    ASSERT(missing);
    int32_t num_missing = 0;
    for (int32_t i = p->first_device; i < p->first_device + p->num_devices; i++) {
        bool looked_at = !f->types[f->devices[i].type].is_cpu && (!only || device_set_has(only, i));
        missing[i] = looked_at ? !is_reported(devices, num, f->devices[i].index)
                               : drains_is_missing(t->drains, i);
        num_missing += missing[i];
    }
    char words[160];
    snprintf(words, sizeof words, "node %s reports %d of %d devices", p->name,
             p->num_devices - num_missing, p->num_devices);
    bool is_new = drains_set_missing(t->drains, node, missing, words);
    if (is_new && num_missing) {
        log_warn("%s: what is missing is out of use until it is reported again", words);
    } else if (is_new) {
        log_info("%s again", words);
    }
    free(missing);
    return is_new;
}

static void say_difference(void *where, const char *words)
{
    (void)where;
    log_warn("%s", words);
}

bool discovery_take(struct topology *t, const NodeInfo *host)
{
    int32_t node = host->name ? fabric_find_node(t->fabric, host->name) : -1;
    if (host->name) {
        cluster_host_compare(t->cluster, host, say_difference, NULL);
    }
    return node >= 0 && take(t, node, host->devices, host->n_devices, NULL);
}

void discovery_of_attempt(struct controller *c, const struct job *j, const Hello *hello)
{
    struct topology *t = controller_topology(c);
    int32_t node = hello->node ? fabric_find_node(t->fabric, hello->node) : -1;
    if (node >= 0 && hello->n_devices > 0 && j->devices.now &&
        take(t, node, hello->devices, hello->n_devices, j->devices.now)) {
        controller_schedule(c);
    }
}

/* ---- asking ---- */

static void say_host(const ProbeReply *reply)
{
    const NodeInfo *host = reply->host;
    log_info("%s has %d cores, %.1f GB of memory, %zu GPUs%s%s", host->name, host->cores,
             (double)host->mem_bytes / 1e9, host->n_devices, host->n_devices ? " of type " : "",
             host->n_devices ? host->devices[0]->type : "");
    for (size_t i = 0; i < reply->n_notes; i++) {
        log_warn("%s: %s", host->name, reply->notes[i]);
    }
}

static const ProbeReply *reply_of(const struct mail *base)
{
    const struct probe_mail *m = (const struct probe_mail *)base;
    if (!m->reply || !m->reply->host || !m->reply->host->name) {
        log_warn("this host could not be looked at: %s",
                 m->reply ? "the probe says nothing of it" : m->error.text);
        return NULL;
    }
    return m->reply;
}

static int on_host(void *controller, struct mail *m, struct error *err)
{
    (void)controller;
    (void)err;
    const ProbeReply *reply = reply_of(m);
    if (reply) {
        say_host(reply);
    }
    if (reply && reply->host->n_devices > 0) {
        log_warn("%s: its GPUs are offered to no job, since there is no cluster file: `tandem "
                 "nodes --host -o yaml` tells what goes into one (docs/operations.md, GPUs)",
                 reply->host->name);
    }
    return 0;
}

static int on_host_of_file(void *controller, struct mail *m, struct error *err)
{
    (void)err;
    const ProbeReply *reply = reply_of(m);
    if (reply) {
        say_host(reply);
    }
    if (reply && discovery_take(controller_topology(controller), reply->host)) {
        controller_schedule(controller);
    }
    return 0;
}

struct probe_mail *discovery_ask(bool has_file)
{
    ProbeRequest *r = msg_new(&probe_request__descriptor);
    MSG_SET(r, discover, 1);
    return probe_mail_new(r, NULL, NULL, has_file ? on_host_of_file : on_host);
}
