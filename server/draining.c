#include "server/draining.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/attempts.h"
#include "server/audit.h"
#include "server/discovery.h"
#include "server/msg.h"

/* ---- what a request means ---- */

struct target {
    int32_t node;     /* of the fabric; -1: the cluster doesn't have it (any more) */
    int32_t device;   /* of the fabric; -1 = all of the node */
    char name[80];    /* "alpha", "alpha:2" */
    const char *host; /* "alpha" */
    int32_t index;    /* -1 = all */
};

/* "0-7" */
static void print_indexes(const struct fabric *f, int32_t node, char *out, size_t size)
{
    const struct fabric_part *p = &f->nodes[node];
    int32_t first = INT32_MAX, last = 0;
    for (int32_t i = p->first_device; i < p->first_device + p->num_devices; i++) {
        int32_t index = f->devices[i].index;
        first = index < first ? index : first;
        last = index > last ? index : last;
    }
    if (first == last) {
        snprintf(out, size, "%d alone", first);
    } else {
        snprintf(out, size, "%d%s%d", first, last - first + 1 == p->num_devices ? "-" : " to ",
                 last);
    }
}

/* forget: it may also be one that the cluster file doesn't have any more. */
static int find_target(struct controller *c, const DrainRequest *r, bool forget, struct target *out,
                       struct error *err)
{
    const struct topology *t = controller_topology(c);
    struct error why;
    if (!r->node || !r->node[0]) {
        return error_set(err, ERR_INVALID_ARGUMENT, "node: say which");
    }
    if (r->has_device && r->device < 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "device: %d: wants 0 or more", r->device);
    }
    *out = (struct target){.device = -1, .host = r->node, .index = r->has_device ? r->device : -1};
    int n = r->has_device ? snprintf(out->name, sizeof out->name, "%.64s:%d", r->node, r->device)
                          : snprintf(out->name, sizeof out->name, "%.64s", r->node);
    ASSERT(n > 0);
    out->node = topology_find_node(t, r->node, &why);
    if (out->node < 0) {
        bool known = forget && drains_find(t->drains, r->node, out->index) != NULL;
        return known ? 0 : error_set(err, ERR_NOT_FOUND, "node: %s", why.text);
    }
    if (r->has_device) {
        out->device = fabric_find_device(t->fabric, r->node, r->device);
        if (out->device < 0 && !(forget && drains_find(t->drains, r->node, r->device))) {
            char have[32];
            print_indexes(t->fabric, out->node, have, sizeof have);
            return error_set(err, ERR_NOT_FOUND, "device: node %s has no device %d; it has %s",
                             r->node, r->device, have);
        }
    }
    return 0;
}

static int check_reason(const char *reason, struct error *err)
{
    const struct drain_row *row = NULL;
    size_t len = reason ? strlen(reason) : 0;
    if (len >= sizeof row->reason) {
        return error_set(err, ERR_INVALID_ARGUMENT, "reason: %zu bytes; at most %zu", len,
                         sizeof row->reason - 1);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)reason[i] < 0x20 || reason[i] == 0x7f) {
            return error_set(err, ERR_INVALID_ARGUMENT, "reason: one line of text is wanted");
        }
    }
    return 0;
}

/* ---- drain ---- */

static bool is_on(const struct fabric *f, const struct job *j, const struct target *t)
{
    for (int32_t i = 0; i < device_set_num(j->devices.now); i++) {
        int32_t d = j->devices.now->device[i];
        if (t->device >= 0 ? d == t->device : f->devices[d].node == t->node) {
            return true;
        }
    }
    return false;
}

/* Jobs on what is drained stop as soon as they have saved. */
static int move_jobs(struct controller *c, const struct target *t, const char *reason,
                     struct error *err)
{
    const struct fabric *f = controller_topology(c)->fabric;
    for (size_t i = 0; i < controller_num_active(c); i++) {
        struct job *j = controller_active_at(c, i);
        if (!is_on(f, j, t)) {
            continue;
        }
        char words[400];
        int32_t num = device_set_num(j->devices.now);
        snprintf(words, sizeof words, "gives its %d device%s back: %s is drained%s%s%s", num,
                 num == 1 ? "" : "s", t->name, *reason ? " (" : "", reason, *reason ? ")" : "");
        if (attempts_request(c, j, SUPERVISE_DRAIN, words, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static void reply(struct controller *c, struct mail *m, const struct target *t)
{
    ClusterSpec *cluster =
        t->node < 0 ? msg_new(&cluster_spec__descriptor) : draining_look(c, NULL, t->node);
    controller_reply(c, m->call, cluster);
}

int draining_on_drain(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const DrainRequest *r = (const DrainRequest *)m->message;
    const struct caller *who = call_caller(m->call);
    const char *reason = r->reason ? r->reason : "";
    struct target t;
    if (find_target(c, r, false, &t, err) != 0 || check_reason(reason, err) != 0) {
        return -1;
    }
    const struct drain_row *before = drains_find(controller_topology(c)->drains, t.host, t.index);
    struct drain_row row;
    memset(&row, 0, sizeof row);
    row.device = t.index;
    row.time_us = controller_wall_us(c);
    row.let_finish = r->let_finish;
    snprintf(row.node, sizeof row.node, "%s", t.host);
    snprintf(row.reason, sizeof row.reason, "%s", *reason || !before ? reason : before->reason);
    reason = row.reason; /* the one that it had, unless another is given */
    snprintf(row.user, sizeof row.user, "%s", who->user);
    if (store_drain_put(controller_store(c), &row, err) != 0 ||
        audit_change(c, who, err, "%s: %s%s", t.name, *reason ? reason : "no reason given",
                     r->let_finish ? ", jobs on it finish" : "") != 0 ||
        (!r->let_finish && move_jobs(c, &t, reason, err) != 0)) {
        return -1;
    }
    drains_put(controller_topology(c)->drains, &row);
    controller_schedule(c);
    reply(c, m, &t);
    return 0;
}

int draining_by_fault(struct controller *c, int32_t device, int64_t job_id, const char *reason,
                      struct error *err)
{
    const struct topology *topology = controller_topology(c);
    const struct fabric_device *d = &topology->fabric->devices[device];
    struct target t = {.node = d->node,
                       .device = device,
                       .host = topology->fabric->nodes[d->node].name,
                       .index = d->index};
    struct drain_row row;
    char peer[32];
    memset(&row, 0, sizeof row);
    snprintf(t.name, sizeof t.name, "%.64s:%d", t.host, t.index);
    snprintf(peer, sizeof peer, "job %lld", (long long)job_id);
    const struct caller who = {
        .user = "system", .tenant = "", .role = "", .peer = peer, .method = "Cluster/Drain"};
    if (drains_find(topology->drains, t.host, t.index)) {
        return 0;
    }
    row.device = t.index;
    row.time_us = controller_wall_us(c);
    snprintf(row.node, sizeof row.node, "%s", t.host);
    snprintf(row.reason, sizeof row.reason, "%s", reason);
    snprintf(row.user, sizeof row.user, "%s", who.user);
    if (store_drain_put(controller_store(c), &row, err) != 0 ||
        audit_change(c, &who, err, "%s: %s", t.name, row.reason) != 0 ||
        move_jobs(c, &t, row.reason, err) != 0) {
        return -1;
    }
    drains_put(topology->drains, &row);
    controller_schedule(c);
    return 0;
}

/* ---- undrain ---- */

/* A node comes back with all of its devices. */
static int remove_rows(struct controller *c, const struct target *t, struct error *err)
{
    struct drains *drains = controller_topology(c)->drains;
    struct store *s = controller_store(c);
    if (t->index >= 0) {
        return store_drain_remove(s, t->host, t->index, err);
    }
    int32_t device = -1;
    int rc = 0;
    for (bool more = true; more && rc == 0; more = drains_next(drains, t->host, &device)) {
        rc = store_drain_remove(s, t->host, device, err);
    }
    return rc;
}

static void forget_rows(struct drains *drains, const struct target *t)
{
    int32_t device = -1;
    drains_remove(drains, t->host, t->index);
    while (t->index < 0 && drains_next(drains, t->host, &device)) {
        drains_remove(drains, t->host, device);
    }
}

static bool has_missing(struct controller *c, int32_t node)
{
    const struct topology *t = controller_topology(c);
    bool found = false;
    for (int32_t i = 0; node >= 0 && i < t->fabric->num_devices; i++) {
        found = found || (t->fabric->devices[i].node == node && drains_is_missing(t->drains, i));
    }
    return found;
}

int draining_on_undrain(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const DrainRequest *r = (const DrainRequest *)m->message;
    struct drains *drains = controller_topology(c)->drains;
    struct target t;
    if (find_target(c, r, true, &t, err) != 0) {
        return -1;
    }
    if (t.index >= 0 && drains_find(drains, t.host, -1)) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: all of node %s is drained: undrain the node, and drain those of its "
                         "devices that are not to be used",
                         t.name, t.host);
    }
    if (remove_rows(c, &t, err) != 0 ||
        audit_change(c, call_caller(m->call), err, "%s", t.name) != 0) {
        return -1;
    }
    forget_rows(drains, &t);
    controller_schedule(c);
    if (has_missing(c, t.node)) {
        controller_probe(c, discovery_ask(true)); /* whoever asks may have put it back */
    }
    reply(c, m, &t);
    return 0;
}

/* ---- the cluster, as it is now ---- */

static void keep_node(ClusterSpec *cluster, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        if (strcmp(cluster->nodes[i]->name, name) == 0) {
            cluster->nodes[kept++] = cluster->nodes[i];
        } else {
            msg_free(cluster->nodes[i]);
        }
    }
    cluster->n_nodes = kept;
}

ClusterSpec *draining_look(struct controller *c, const char *tenant, int32_t node)
{
    const struct topology *t = controller_topology(c);
    size_t num = (size_t)t->fabric->num_devices;
    int64_t *holders = calloc(num + 1, sizeof *holders);
    int64_t *claims = calloc(num + 1, sizeof *claims);
    ASSERT(holders && claims);
    controller_holders(c, holders);
    controller_claims(c, claims);
    for (size_t i = 0; i < num; i++) {
        holders[i] = controller_shown(c, holders[i], tenant);
        claims[i] = controller_shown(c, claims[i], tenant);
    }
    ClusterSpec *cluster = topology_message(t, holders, claims);
    attempts_show_stuck(c, cluster, tenant);
    if (node >= 0) {
        keep_node(cluster, t->fabric->nodes[node].name);
    }
    free(holders);
    free(claims);
    return cluster;
}
