#include "tests/sim/sim_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "server/msg.h"

/* ---- drawn ---- */

static void draw_nodes(struct sim *s, struct sim_cluster *c)
{
    c->num_nodes = (int32_t)sim_rng_between(&s->rng, 1, SIM_NODES_MAX);
    for (int32_t n = 0; n < c->num_nodes; n++) {
        snprintf(c->names[n], sizeof c->names[n], "node%d", n);
        int64_t num = sim_rng_between(&s->rng, 1, SIM_NODE_DEVICES_MAX);
        for (int32_t i = 0; i < num; i++) {
            c->places[c->num_devices++] = (struct sim_place){n, i};
        }
    }
    c->pairs = sim_rng_chance(&s->rng, 0.3);
    c->leaves = sim_rng_chance(&s->rng, 0.5);
}

static void draw_host(struct sim_cluster *c)
{
    c->plain = true;
    c->num_nodes = 1;
    c->num_devices = SIM_HOST_DEVICES;
    snprintf(c->names[0], sizeof c->names[0], "host");
    for (int32_t i = 0; i < SIM_HOST_DEVICES; i++) {
        c->places[i] = (struct sim_place){0, i};
    }
}

/* Seconds where the real ones are minutes: a run is short here. */
static void draw_scheduler(struct sim *s, struct sim_cluster *c)
{
    SchedulerConfig *o = &c->scheduler;
    scheduler_config__init(o);
    MSG_SET(o, preemption, sim_rng_chance(&s->rng, 0.85));
    MSG_SET(o, backfill, sim_rng_chance(&s->rng, 0.8));
    MSG_SET(o, max_evictions, (int32_t)sim_rng_between(&s->rng, 0, 3));
    MSG_SET(o, min_run_s, (int32_t)sim_rng_between(&s->rng, 0, 2));
    MSG_SET(o, grace_s, (int32_t)sim_rng_between(&s->rng, 1, 8));
    MSG_SET(o, aging_per_h, sim_rng_chance(&s->rng, 0.5) ? 0 : 5000);
    MSG_SET(o, fair_share, sim_rng_chance(&s->rng, 0.5) ? 0 : 100);
    MSG_SET(o, fair_share_half_life_h, sim_rng_chance(&s->rng, 0.5) ? 168 : 0.01);
}

void sim_cluster_new(struct sim *s)
{
    struct sim_cluster *c = s->cluster = calloc(1, sizeof *c);
    ASSERT(c);
    if (sim_rng_chance(&s->rng, s->profile->cluster)) {
        draw_nodes(s, c);
    } else {
        draw_host(c);
    }
    c->all = c->file = ((uint64_t)1 << c->num_devices) - 1;
    c->has_scheduler = sim_rng_chance(&s->rng, s->profile->queue);
    if (c->has_scheduler) {
        draw_scheduler(s, c);
    }
}

void sim_cluster_free(struct sim *s)
{
    free(s->cluster);
}

/* ---- changed ---- */

/* Without some nodes, and without a device here and there. */
static void draw_file(struct sim *s, struct sim_cluster *c)
{
    c->file = 0;
    while (!c->file) {
        uint64_t gone = 0;
        for (int32_t n = 0; n < c->num_nodes; n++) {
            gone |= sim_rng_chance(&s->rng, 0.35) ? sim_cluster_of_node(s, n) : 0;
        }
        for (int32_t d = 0; d < c->num_devices; d++) {
            gone |= sim_rng_chance(&s->rng, 0.1) ? (uint64_t)1 << d : 0;
        }
        c->file = c->all & ~gone;
    }
}

void sim_cluster_edit(struct sim *s, bool whole)
{
    struct sim_cluster *c = s->cluster;
    uint64_t had = c->file;
    if (c->has_scheduler && sim_strikes(s, 0.2)) {
        draw_scheduler(s, c);
    }
    if (whole) {
        c->file = c->all;
        c->missing = 0;
    } else if (!c->plain && sim_strikes(s, s->profile->recluster)) {
        draw_file(s, c);
    }
    if (c->file != had) {
        c->version++;
        sim_trace(s->now_us, "the cluster file has devices %llx now", (unsigned long long)c->file);
    }
}

void sim_cluster_lose(struct sim *s)
{
    struct sim_cluster *c = s->cluster;
    c->missing = 0;
    if (sim_strikes(s, s->profile->lose_device)) {
        c->missing = (uint64_t)1 << sim_rng_between(&s->rng, 0, c->num_devices - 1);
        sim_trace(s->now_us, "the host comes up without devices %llx",
                  (unsigned long long)c->missing);
    }
}

/* ---- told to a start ---- */

static ClusterSpec *make_file(const struct sim_cluster *c)
{
    ClusterSpec *spec = msg_new(&cluster_spec__descriptor);
    NodeInfo *node = NULL;
    int32_t last = -1;
    for (int32_t d = 0; d < c->num_devices; d++) {
        const struct sim_place *p = &c->places[d];
        if (!(c->file >> d & 1)) {
            continue;
        }
        if (p->node != last) {
            last = p->node;
            node = msg_new(&node_info__descriptor);
            msg_text(&node->name, c->names[p->node]);
            msg_push(&spec->nodes, &spec->n_nodes, node);
            char leaf[24];
            snprintf(leaf, sizeof leaf, "leaf%d", c->leaves ? p->node / 2 : 0);
            char *name = NULL, *top = NULL;
            msg_text(&name, leaf);
            msg_text(&top, "spine");
            msg_push(&node->switches, &node->n_switches, name);
            msg_push(&node->switches, &node->n_switches, top);
        }
        DeviceInfo *device = msg_new(&device_info__descriptor);
        MSG_SET(device, index, p->index);
        device->type = NULL;
        msg_text(&device->type, "cpu");
        if (c->pairs) {
            char domain[24];
            snprintf(domain, sizeof domain, "fast%d", p->node / 2);
            msg_text(&device->domain, domain);
        }
        msg_push(&node->devices, &node->n_devices, device);
    }
    return spec;
}

static void tell_missing(const struct sim_cluster *c, struct topology *t)
{
    bool missing[SIM_DEVICES_MAX];
    for (int32_t i = 0; i < t->fabric->num_devices; i++) {
        missing[i] = c->missing >> c->numbers[i] & 1;
    }
    for (int32_t n = 0; c->missing && n < t->fabric->num_nodes; n++) {
        drains_set_missing(t->drains, n, missing, "reports fewer devices");
    }
}

int sim_cluster_topology(struct sim *s, struct topology **out, struct error *err)
{
    const struct topology_host host = {
        .node = "host", .cpu_model = "simulated", .boot_id = "boot", .cores = 8};
    struct sim_cluster *c = s->cluster;
    ClusterSpec *spec = c->plain ? NULL : make_file(c);
    if (spec && cluster_check("cluster.yaml", spec, err) != 0) {
        msg_free(spec);
        sim_fail(s, "a sound cluster file is refused: %s", err->text);
        return -1;
    }
    if (topology_new(out, &host, spec, SIM_HOST_DEVICES, err) != 0) {
        return -1;
    }
    topology_set_peaks(*out, 1e11, 5e10);
    const struct fabric *f = (*out)->fabric;
    c->num_in_file = f->num_devices;
    for (int32_t i = 0; i < f->num_devices; i++) {
        uint64_t bit = sim_cluster_named(s, f->nodes[f->devices[i].node].name, f->devices[i].index);
        ASSERT(bit);
        c->numbers[i] = __builtin_ctzll(bit);
    }
    tell_missing(c, *out);
    return 0;
}

const SchedulerConfig *sim_cluster_scheduler(const struct sim *s)
{
    return s->cluster->has_scheduler ? &s->cluster->scheduler : NULL;
}

/* ---- numbers ---- */

uint64_t sim_cluster_bit(const struct sim *s, int32_t in_fabric)
{
    ASSERT(in_fabric >= 0 && in_fabric < s->cluster->num_in_file);
    return (uint64_t)1 << s->cluster->numbers[in_fabric];
}

uint64_t sim_cluster_mask(const struct sim *s, const struct device_set *set)
{
    uint64_t mask = 0;
    for (int32_t i = 0; i < device_set_num(set); i++) {
        mask |= sim_cluster_bit(s, set->device[i]);
    }
    return mask;
}

uint64_t sim_cluster_named(const struct sim *s, const char *node, int32_t index)
{
    const struct sim_cluster *c = s->cluster;
    for (int32_t d = 0; d < c->num_devices; d++) {
        if (c->places[d].index == index && strcmp(c->names[c->places[d].node], node) == 0) {
            return (uint64_t)1 << d;
        }
    }
    return 0;
}

uint64_t sim_cluster_of_node(const struct sim *s, int32_t node)
{
    uint64_t mask = 0;
    for (int32_t d = 0; d < s->cluster->num_devices; d++) {
        mask |= s->cluster->places[d].node == node ? (uint64_t)1 << d : 0;
    }
    return mask;
}
