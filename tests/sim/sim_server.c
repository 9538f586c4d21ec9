#include "tests/sim/sim_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/controller_private.h"
#include "server/audit.h"
#include "server/store/access_rows.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_admin.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_stream.h"

#define DB SIM_DATA_DIR "/tandem.db"
/* Those of looks at processes that aren't attached, most of all. */
#define IDLE_STEPS_MAX 200

int64_t sim_server_mono_ms(const struct sim *s)
{
    const struct sim_server *v = s->server;
    int64_t now_us = v->busy_us > s->now_us ? v->busy_us : s->now_us;
    return v->mono_0_ms + now_us / 1000;
}

static void add_tenants(struct store *store)
{
    for (int32_t i = 0; i < SIM_TENANTS_MAX; i++) {
        struct tenant_row row = {
            .created_us = 1, .quota_devices = -1, .max_devices = -1, .weight = 1};
        struct error err = {0};
        snprintf(row.name, sizeof row.name, "%s", sim_tenants[i]);
        ASSERT(store_begin(store, &err) == 0 && store_tenant_put(store, &row, &err) == 0 &&
               store_commit(store, &err) == 0);
    }
}

/* An empty, migrated database, made once. */
static const struct sim_disk *fresh_disk(void)
{
    static struct sim_disk *disk;
    static struct sim_rng rng;
    if (!disk) {
        struct store *store;
        struct error err = {0};
        disk = sim_disk_new(&rng);
        sim_disk_use(disk);
        if (store_open(&store, DB, &err) != 0) {
            fprintf(stderr, "the simulated disk: %s\n", err.text);
            abort();
        }
        add_tenants(store);
        store_close(store);
    }
    return disk;
}

void sim_server_new(struct sim *s)
{
    s->server = calloc(1, sizeof *s->server);
    ASSERT(s->server);
    const struct sim_disk *fresh = fresh_disk();
    s->disk = sim_disk_new(&s->rng);
    sim_disk_copy(s->disk, fresh);
    sim_disk_use(s->disk);
    sim_disk_faults(s->disk)->sync_us_max = 300;
    ASSERT(audit_new(&s->server->app.audit) == 0);
    s->server->mono_0_ms = sim_rng_between(&s->rng, 1000, 100000000);
    s->server->wall_0_us = 1790000000000000 + sim_rng_between(&s->rng, 0, 1000000000);
}

/* ---- steps ---- */

static void wake(struct sim *s, void *arg, int64_t id);

static void wake_at(struct sim *s, int64_t at_us)
{
    struct sim_server *v = s->server;
    v->wake_us = at_us < v->busy_us ? v->busy_us : at_us;
    sim_at(s, v->wake_us, wake, NULL, NULL, ++v->wake_id);
}

static void begin_step(struct sim *s)
{
    struct sim_server *v = s->server;
    v->step_us = v->busy_us > s->now_us ? v->busy_us : s->now_us;
    v->unchecked_us = v->unchecked ? v->unchecked_us : v->step_us;
    v->unchecked = true;
}

/* It wakes for what is due, not to see whether something is. */
static void check_rest(struct sim *s, bool has_mail)
{
    struct sim_server *v = s->server;
    if (v->second != s->now_us / 1000000) {
        v->second = s->now_us / 1000000;
        v->idle_steps = 0;
    }
    v->idle_steps += !has_mail;
    if (v->idle_steps > IDLE_STEPS_MAX) {
        sim_fail(s, "tandemd has woken %lld times in a second, and nothing had happened",
                 (long long)v->idle_steps);
    }
}

static void note_busy(struct sim *s)
{
    struct sim_server *v = s->server;
    int64_t late_us = v->busy_us - s->now_us;
    v->late_us = late_us > v->late_us ? late_us : v->late_us;
}

static void step(struct sim *s)
{
    struct sim_server *v = s->server;
    struct mailbox_node *chain = v->inbox;
    v->inbox = NULL;
    v->wake_us = INT64_MAX;
    s->seen.steps++;
    check_rest(s, chain != NULL);
    begin_step(s);
    controller_step(v->app.controller, chain);
    v->busy_us = s->now_us + sim_disk_take_us(s->disk);
    note_busy(s);
    if (sim_disk_is_frozen(s->disk)) {
        sim_server_restart(s, true);
        return;
    }
    /* What could not be committed may be on the disk all the same: a sync failed, no more. */
    v->unchecked = v->app.controller->retry_ms != 0;
    sim_check_server(s);
    int64_t wait_ms = controller_wait_ms(v->app.controller);
    if (wait_ms >= 0) {
        wake_at(s, s->now_us + 1000 * wait_ms + (wait_ms ? 0 : 50));
    }
}

static void wake(struct sim *s, void *arg, int64_t id)
{
    (void)arg;
    if (s->server->up && id == s->server->wake_id) {
        step(s);
    }
}

void sim_server_poke(struct sim *s)
{
    struct sim_server *v = s->server;
    if (!v->up) {
        return;
    }
    struct mailbox_node *chain = mailbox_take(controller_mailbox(v->app.controller), 0);
    if (!chain) {
        return;
    }
    struct mailbox_node **last = &v->inbox;
    while (*last) {
        last = &(*last)->next;
    }
    *last = chain;
    /* A busy machine lets mail pile up: batches. */
    int64_t at_us = s->now_us + sim_rng_delay(&s->rng, 5, s->calm ? 1000 : 100000);
    if (at_us < v->wake_us) {
        wake_at(s, at_us);
    }
}

/* ---- boot and end ---- */

static void renew_leases(struct sim *s, void *arg, int64_t generation)
{
    (void)arg;
    if (s->server->up && s->server->generation == generation) {
        lease_renew(s->server->lease);
        sim_after(s, LEASE_RENEW_MS * 1000, renew_leases, NULL, NULL, generation);
    }
}

static void free_parts(struct sim_server *v)
{
    mail_free_chain(v->inbox);
    v->inbox = NULL;
    launching_free(v->launching);
    controller_free(v->app.controller);
    lease_free(v->lease);
    v->launching = NULL;
    v->app.controller = NULL;
    v->lease = NULL;
}

static int make_parts(struct sim *s, struct error *err)
{
    struct sim_server *v = s->server;
    struct controller_options o = {.data_dir = SIM_DATA_DIR,
                                   .bin_dir = "/bin",
                                   .worker_addr = "unix:/sim/tandemd.sock",
                                   .world = sim_world(s),
                                   .scheduler = sim_cluster_scheduler(s),
                                   .lease_ms = LEASE_TTL_MS};
    if (store_open(&o.store, DB, err) != 0) {
        return -1;
    }
    if (sim_cluster_topology(s, &o.topology, err) != 0 || lease_new(&v->lease, 0) != 0 ||
        controller_new(&v->app.controller, &o, err) != 0) {
        topology_free(o.topology);
        store_close(o.store);
        return -1;
    }
    if (launching_new(&v->launching, sim_launcher_new(s), SIM_DATA_DIR,
                      controller_mailbox(v->app.controller), err) != 0) {
        return -1;
    }
    return controller_open(v->app.controller, err);
}

static void boot_again(struct sim *s, void *arg, int64_t n)
{
    (void)arg;
    (void)n;
    sim_server_boot(s);
}

void sim_server_boot(struct sim *s)
{
    struct sim_server *v = s->server;
    struct error err = {0};
    if (v->up) {
        return;
    }
    v->generation++;
    v->num_tokens = 0;
    v->busy_us = s->now_us; /* what held the last one up is over */
    v->app.data_dir = SIM_DATA_DIR;
    sim_server_rot(s);
    sim_cluster_edit(s, s->calm);
    int rc = make_parts(s, &err);
    v->busy_us = s->now_us + sim_disk_take_us(s->disk);
    v->booted_us = s->now_us;
    note_busy(s);
    if (rc != 0 || sim_disk_is_frozen(s->disk)) {
        sim_trace(s->now_us, "tandemd can't start: %s", rc ? err.text : "crashed");
        bool crashed = sim_disk_is_frozen(s->disk);
        free_parts(v);
        if (crashed) {
            sim_disk_thaw(s->disk);
        }
        if (s->calm && !crashed) {
            sim_fail(s, "tandemd can't start on a sound disk: %s", err.text);
        }
        sim_after(s, 500000, boot_again, NULL, NULL, 0);
        return;
    }
    sim_trace(s->now_us, "tandemd starts (%lld)", (long long)v->generation);
    v->up = true;
    v->wake_us = INT64_MAX;
    sim_check_boot(s);
    renew_leases(s, NULL, v->generation);
    wake_at(s, s->now_us + 10);
}

void sim_server_crash(struct sim *s)
{
    struct sim_server *v = s->server;
    if (!v->up) {
        return;
    }
    s->seen.crashes++;
    sim_trace(s->now_us, "tandemd is killed");
    sim_disk_freeze(s->disk);
    v->up = false;
    free_parts(v);
    sim_disk_thaw(s->disk);
    sim_stream_server_gone(s);
}

void sim_server_stop(struct sim *s)
{
    struct sim_server *v = s->server;
    if (!v->up) {
        return;
    }
    sim_trace(s->now_us, "tandemd stops");
    struct mailbox_node *rest = v->inbox;
    v->inbox = NULL;
    if (rest) {
        begin_step(s);
        controller_step(v->app.controller, rest);
    }
    if (sim_disk_is_frozen(s->disk)) {
        sim_server_crash(s);
        return;
    }
    v->up = false;
    free_parts(v);
    if (sim_disk_is_frozen(s->disk)) {
        sim_disk_thaw(s->disk);
    }
    sim_stream_server_gone(s);
}

void sim_server_restart(struct sim *s, bool crash)
{
    if (crash) {
        sim_server_crash(s);
    } else {
        sim_server_stop(s);
    }
    int64_t down_us = sim_rng_delay(&s->rng, 1000, 1000 * s->profile->down_max_ms);
    sim_after(s, s->calm ? 1000 : down_us, boot_again, NULL, NULL, 0);
}

void sim_server_reboot(struct sim *s)
{
    sim_trace(s->now_us, "the host goes down");
    sim_server_restart(s, true);
    sim_node_reboot(s);
    sim_cluster_lose(s);
    s->server->busy_us = 0;
    s->server->mono_0_ms = 5000 - s->now_us / 1000;
}

void sim_server_free(struct sim *s)
{
    if (s->server) {
        sim_disk_freeze(s->disk);
        free_parts(s->server);
        audit_free(s->server->app.audit);
        free(s->server->tokens);
        free(s->server);
        sim_disk_free(s->disk);
    }
}

const struct sim_token *sim_server_token(const struct sim *s, const uint8_t sha256[HASH_BYTES])
{
    const struct sim_server *v = s->server;
    for (size_t i = v->num_tokens; i > 0; i--) {
        if (memcmp(v->tokens[i - 1].sha256, sha256, HASH_BYTES) == 0) {
            return &v->tokens[i - 1];
        }
    }
    return NULL;
}
