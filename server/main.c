/* tandemd, the controller. Its threads, and what each owns:
 *
 *   main    signals; renews leases and ends expired tokens, so that these never wait for a disk
 *   accept  in server/rpc: new connections, from every listener
 *   tls     in server/rpc: handshakes; bytes between the network and gRPC, which sees plain text
 *   check   in server/rpc: looks at the listeners from outside, and for new certificates
 *   io      three, in server/rpc: sockets (two of them), decoding, authentication; post mail
 *   owner   all state (server/owner.c): jobs, attempts, devices, the writing connection
 *   query   a read-only connection: lists, curves
 *   feed    a read-only connection: watchers, logs that are followed
 *   launch  tandem-nodes: start, look for, kill; waits for none of them
 *   probe   four: tandem-probe, what a model folder and a data file hold
 *   backup  a read-only connection: copies of the database
 *   sweep   what is removed for its age: files itself, rows by mail to the owner
 *
 * They share nothing but mailboxes, the table of tokens (auth), the counts of refusals (audit) and
 * the list of leases. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "proto/text.h"
#include "server/app.h"
#include "server/discovery.h"
#include "server/folder.h"
#include "server/msg.h"
#include "server/options.h"
#include "server/restore.h"
#include "server/retention.h"
#include "server/owner.h"
#include "server/record.h"
#include "server/run_as.h"
#include "server/secrecy.h"
#include "server/world_real.h"

#define STOP_GRACE_MS 500
#define TICK_MS 1000

struct tandemd {
    struct options options;
    char data_dir[PATH_MAX];
    char socket[PATH_MAX + 8];   /* unix:DATA_DIR/tandemd.sock */
    char workers[PATH_MAX + 32]; /* unix-any:DATA_DIR/worker.sock, for other users' tandem-nodes */
    char worker_addr[PATH_MAX + 32]; /* how they call it */
    char address[PATH_MAX + 8];      /* what is announced */
    char bin_dir[PATH_MAX];
    struct app app;
    struct world_real parts;
    struct record *record;
    struct owner *owner;
    struct retention *retention;
    struct allowed *allowed; /* NULL without --config */
    struct run_as *run_as;   /* NULL: all run as ourselves */
    struct server *server;
    atomic_bool recheck; /* streams were refused that may not have ended yet */
};

static int authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                        const struct method *method, struct caller *caller, struct error *err)
{
    struct app *app = ctx;
    return auth_check(app->auth, bearer, unix_socket, peer, method, caller, err);
}

static int still_allowed(void *ctx, const struct caller *caller, const struct method *method,
                         struct error *err)
{
    struct app *app = ctx;
    return auth_still_allowed(app->auth, caller, method->access, err);
}

static void on_rights_changed(void *ctx)
{
    struct tandemd *d = ctx;
    if (d->server) {
        atomic_store(&d->recheck, server_recheck(d->server) > 0);
    }
}

/* A listener that runs out of descriptors is lost for good: have many. */
static void raise_limits(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) != 0) {
            log_warn("open files are limited to %llu", (unsigned long long)r.rlim_cur);
        }
    }
}

/* ---- the peak of a device, measured once for a kind of CPU ---- */

static int on_peak(void *controller, struct mail *base, struct error *err)
{
    struct controller *c = controller;
    const struct probe_mail *m = (const struct probe_mail *)base;
    if (!m->reply) {
        log_warn("the peak of a device could not be measured; MFU stays unknown: %s",
                 m->error.text);
        return 0;
    }
    struct topology *t = controller_topology(c);
    double fp32 = m->reply->peak_flops_fp32, fp64 = m->reply->peak_flops_fp64;
    topology_set_peaks(t, fp32, fp64);
    log_info("one device of %s: %.1f GFLOP/s in fp32, %.1f in fp64", t->host.cpu_model, fp32 / 1e9,
             fp64 / 1e9);
    return store_peak_set(controller_store(c), t->host.cpu_model, fp32, fp64, err);
}

static void measure_peak(struct tandemd *d)
{
    ProbeRequest *r = msg_new(&probe_request__descriptor);
    MSG_SET(r, device_peak, 1);
    probing_post(d->parts.probing, probe_mail_new(r, NULL, NULL, on_peak));
}

/* ---- start and stop ---- */

static int make_paths(struct tandemd *d, struct error *err)
{
    if (folder_open(d->options.data_dir, d->data_dir, sizeof d->data_dir, err) != 0 ||
        fs_self_dir(d->bin_dir, sizeof d->bin_dir, err) != 0) {
        return -1;
    }
    struct sockaddr_un longest;
    int n = snprintf(d->socket, sizeof d->socket, "unix:%s/tandemd.sock", d->data_dir);
    if (n - (int)strlen("unix:") >= (int)sizeof longest.sun_path) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: too long for the path of a socket (%zu bytes with tandemd.sock); "
                         "choose a shorter --data-dir",
                         d->data_dir, sizeof longest.sun_path - 1);
    }
    snprintf(d->workers, sizeof d->workers, "unix-any:%s/worker.sock", d->data_dir);
    snprintf(d->worker_addr, sizeof d->worker_addr, "unix:%s/worker.sock", d->data_dir);
    return 0;
}

/* With the peaks of this host's devices, where these were measured before. */
static int make_topology(struct tandemd *d, struct store *store, struct controller_options *o,
                         bool *is_measured, struct error *err)
{
    struct topology_host host;
    topology_look(&host);
    int rc = store_peak_get(store, host.cpu_model, &host.peak_fp32, &host.peak_fp64, err);
    *is_measured = rc == 1;
    if (rc < 0) {
        return -1;
    }
    ClusterSpec *cluster =
        d->options.cluster ? (ClusterSpec *)text_clone(&d->options.cluster->base) : NULL;
    return topology_new(&o->topology, &host, cluster, d->options.devices, err);
}

/* The database, db, as it was left or as a backup is put in its place. */
static int open_database(const struct tandemd *d, char db[PATH_MAX], struct store **out,
                         struct error *err)
{
    if (!fs_join(db, PATH_MAX, d->data_dir, "tandem.db")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", d->data_dir);
    }
    if (restore_pending(d->data_dir, err) != 0 || store_open(out, db, err) != 0) {
        return -1;
    }
    if (restore_needed(*out, d->data_dir, err) != 0) {
        store_close(*out);
        return -1;
    }
    return 0;
}

/* What the controller talks to, and what talks to it. */
static int start_around(struct tandemd *d, struct error *err)
{
    struct mailbox *back = controller_mailbox(d->app.controller);
    struct launcher *launcher;
    if (launcher_local_new(&launcher, d->bin_dir, d->data_dir, err) != 0 ||
        launching_new(&d->parts.launching, launcher, d->data_dir, back, err) != 0 ||
        probing_new(&d->parts.probing, d->bin_dir, back, err) != 0 ||
        controller_open(d->app.controller, err) != 0 ||
        owner_new(&d->owner, d->app.controller, err) != 0) {
        return -1;
    }
    return retention_new(&d->retention, d->options.config ? d->options.config->retention : NULL,
                         d->data_dir, back, err);
}

static int start_threads(struct tandemd *d, struct error *err)
{
    char db[PATH_MAX];
    struct store *store = NULL, *reader = NULL;
    bool is_measured;
    if (open_database(d, db, &store, err) != 0) {
        return -1;
    }
    struct controller_options o = {.data_dir = d->data_dir,
                                   .bin_dir = d->bin_dir,
                                   .worker_addr = d->run_as ? d->worker_addr : d->socket,
                                   .store = store,
                                   .world = world_real(&d->parts),
                                   .scheduler = d->options.scheduler,
                                   .tenant_queued_jobs =
                                       auth_limits(d->app.auth)->tenant_queued_jobs};
    if (access_load(d->app.access, store, err) != 0 ||
        make_topology(d, store, &o, &is_measured, err) != 0 ||
        store_schema_version(store, &d->app.schema_version, err) != 0 ||
        store_open_reader(&reader, db, err) != 0 ||
        query_new(&d->app.query, reader, d->data_dir, err) != 0 ||
        store_open_reader(&reader, db, err) != 0 ||
        feed_new(&d->app.feed, reader, d->data_dir, auth_limits(d->app.auth)->user_watchers, err) !=
            0 ||
        backup_new(&d->app.backup, d->data_dir, err) != 0) {
        goto failed;
    }
    d->parts.auth = d->app.auth;
    d->parts.audit = d->app.audit;
    d->parts.feed = d->app.feed;
    o.allowed = d->allowed;
    o.lease_ms = lease_ttl_ms(d->parts.lease);
    o.run_as = d->run_as;
    if (d->options.record) {
        if (record_new(&d->record, d->options.record, db, err) != 0) {
            goto failed;
        }
        o.world = record_world(d->record, &o, o.world);
    }
    if (controller_new(&d->app.controller, &o, err) != 0) {
        goto failed;
    }
    if (start_around(d, err) != 0) {
        return -1;
    }
    if (!is_measured) {
        measure_peak(d);
    }
    probing_post(d->parts.probing, discovery_ask(d->options.cluster != NULL));
    return 0;
failed:
    topology_free(o.topology);
    store_close(store);
    return -1;
}

static void take_config(struct server_options *o, struct tls_files *tls, const ServerConfig *c)
{
    const LimitsConfig defaults = LIMITS_CONFIG__INIT;
    const LimitsConfig *limits = c && c->limits ? c->limits : &defaults;
    o->max_connections = limits->connections;
    o->max_connections_per_address = limits->connections_per_address;
    if (c && c->tls) {
        const TlsConfig *t = c->tls;
        *tls = (struct tls_files){t->cert_file, t->key_file, t->client_ca_file,
                                  t->require_client_cert};
        o->tls = tls;
    }
}

static int start_server(struct tandemd *d, struct error *err)
{
    const char *listen[OPTIONS_LISTEN_MAX + 3] = {d->socket};
    for (int i = 0; i < d->options.num_listen; i++) {
        listen[i + 1] = d->options.listen[i];
    }
    listen[d->options.num_listen + 1] = d->run_as ? d->workers : NULL;
    const struct method *const tables[] = {
        svc_jobs_methods,    svc_runs_methods,   svc_checkpoints_methods,
        svc_cluster_methods, svc_plans_methods,  svc_admin_methods,
        svc_backup_methods,  svc_worker_methods, NULL};
    struct server_options o = {.listen = listen,
                               .num_trusted = d->options.dev ? OPTIONS_LISTEN_MAX + 1 : 1,
                               .tables = tables,
                               .ctx = &d->app,
                               .authenticate = authenticate,
                               .still_allowed = still_allowed};
    struct tls_files tls;
    take_config(&o, &tls, d->options.config);
    if (server_new(&d->server, &o, err) != 0) {
        return -1;
    }
    snprintf(d->address, sizeof d->address, "%s", d->socket);
    for (int i = 0; i < d->options.num_listen; i++) {
        const char *a = d->options.listen[i];
        const char *colon = strrchr(a, ':');
        if (strncmp(a, "unix:", 5) == 0 || !colon) {
            snprintf(d->address, sizeof d->address, "%s", a);
        } else {
            snprintf(d->address, sizeof d->address, "%.*s:%d", (int)(colon - a), a,
                     server_port(d->server, i + 1));
        }
        log_info("listening on %s", d->address);
    }
    return server_start(d->server, err);
}

static int start_auth(struct tandemd *d, const char *token_path, struct error *err)
{
    const ServerConfig *config = d->options.config;
    struct auth_options o = {.dev_token_path = d->options.dev ? token_path : NULL,
                             .limits = config ? config->limits : NULL};
    RetentionConfig defaults = RETENTION_CONFIG__INIT;
    const RetentionConfig *keep = config && config->retention ? config->retention : &defaults;
    if (audit_new(&d->app.audit) != 0) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    o.audit = d->app.audit;
    if (auth_new(&d->app.auth, &o, err) != 0) {
        return -1;
    }
    const struct access_options a = {.auth = d->app.auth,
                                     .audit = d->app.audit,
                                     .audit_days = keep->audit_days,
                                     .changed = on_rights_changed,
                                     .ctx = d};
    return access_new(&d->app.access, &a) == 0
               ? 0
               : error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
}

static int64_t lease_s_of(const ServerConfig *config)
{
    return config && config->limits ? config->limits->lease_s : 0;
}

static int start(struct tandemd *d, struct error *err)
{
    char token_path[PATH_MAX];
    if (make_paths(d, err) != 0) {
        return -1;
    }
    if (!fs_join(token_path, sizeof token_path, d->data_dir, "dev-token")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", d->data_dir);
    }
    d->app.data_dir = d->data_dir;
    const ServerConfig *config = d->options.config;
    /* With --dev all that the server has is the one user's. */
    if (config && allowed_new(&d->allowed, config->roots, config->n_roots,
                              d->options.dev ? NULL : d->data_dir, err) != 0) {
        return -1;
    }
    if (config && !config->n_roots) {
        log_warn("the config names no roots: jobs of every tenant may read all that this user can");
    }
    if (room_new(&d->app.room, d->data_dir, err) != 0) {
        return -1;
    }
    d->parts.room = d->app.room;
    if (run_as_new(&d->run_as, config, d->bin_dir, d->data_dir, err) != 0) {
        return -1;
    }
    d->app.started_us = clock_wall_us();
    if (start_auth(d, token_path, err) != 0 ||
        lease_new(&d->parts.lease, lease_s_of(config) * 1000) != 0 || start_threads(d, err) != 0 ||
        start_server(d, err) != 0) {
        return -1;
    }
    server_set_serving(d->server, !room_is_out(d->app.room, NULL, 0));
    struct error why = {0};
    if (d->options.dev && folder_announce(d->address, auth_dev_token(d->app.auth), &why) != 0) {
        log_warn("not announced to the CLI (give it --server %s): %s", d->address, why.text);
    }
    log_info("tandemd " TANDEM_VERSION " serves %s and %s", d->data_dir, d->address);
    return 0;
}

/* From the outside inwards: no new calls, then what is in hand, then the readers. */
static void stop(struct tandemd *d)
{
    if (d->server) {
        server_set_serving(d->server, false);
        server_stop(d->server, STOP_GRACE_MS);
        access_tick(d->app.access, controller_mailbox(d->app.controller));
    }
    retention_stop(d->retention);
    owner_free(d->owner);
    record_free(d->record);
    launching_free(d->parts.launching);
    probing_free(d->parts.probing);
    query_free(d->app.query);
    backup_free(d->app.backup);
    controller_free(d->app.controller);
    retention_free(d->retention);
    feed_free(d->app.feed);
    server_free(d->server);
    lease_free(d->parts.lease);
    access_free(d->app.access);
    auth_free(d->app.auth);
    audit_free(d->app.audit);
    allowed_free(d->allowed);
    run_as_free(d->run_as);
    room_free(d->app.room);
}

static int on_room(void *controller, struct mail *m, struct error *err)
{
    (void)m;
    (void)err;
    controller_schedule(controller);
    return 0;
}

/* Health says whether new work is taken; what had to wait for room goes on once there is some. */
static void look_for_room(struct tandemd *d)
{
    if (room_look(d->app.room)) {
        server_set_serving(d->server, !room_is_out(d->app.room, NULL, 0));
        struct mail *m = mail_new(sizeof *m, on_room, NULL, NULL);
        mailbox_post(controller_mailbox(d->app.controller), &m->node);
    }
}

/* Renews leases and looks after tokens until a signal comes; HUP reads the certificate anew. */
static void wait_for_the_end(struct tandemd *d, const sigset_t *signals)
{
    int64_t every_ms = lease_renew_ms(d->parts.lease);
    int64_t tick_ms = every_ms < TICK_MS ? every_ms : TICK_MS;
    const struct timespec tick = {.tv_sec = tick_ms / 1000, .tv_nsec = tick_ms % 1000 * 1000000};
    int64_t renew_ms = 0;
    int signal_number;
    /* With a config file HUP means to read certificates again; else a terminal was closed. */
    while ((signal_number = sigtimedwait(signals, NULL, &tick)) < 0 ||
           (signal_number == SIGHUP && d->options.config)) {
        struct error err = {0};
        int64_t now_ms = clock_mono_ms();
        if (now_ms >= renew_ms) {
            lease_renew(d->parts.lease);
            renew_ms = now_ms + every_ms;
        }
        look_for_room(d);
        access_tick(d->app.access, controller_mailbox(d->app.controller));
        if (atomic_load(&d->recheck)) {
            on_rights_changed(d);
        }
        if (signal_number == SIGHUP && server_reload_tls(d->server, &err)) {
            log_error("the new certificate is not used: %s", err.text);
        }
    }
}

int main(int argc, char **argv)
{
    static struct tandemd d;
    struct error err = {0};
    log_init("tandemd");
    int rc = options_parse(&d.options, argc, argv, &err);
    if (rc > 0) {
        return 0;
    }
    if (rc < 0) {
        fprintf(stderr, "tandemd: %s\n", err.text);
        return 2;
    }
    if (d.options.check) {
        options_print(&d.options);
        return 0;
    }
    if (d.options.restore) {
        rc = make_paths(&d, &err) == 0 ? restore_run(d.options.restore, d.data_dir, &err) : -1;
        if (rc != 0) {
            fprintf(stderr, "tandemd: %s\n", err.text);
        }
        return rc == 0 ? 0 : 1;
    }
    /* Blocked before any thread exists: only this one takes them. */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error that has a name */
    raise_limits();
    secrecy_guard_memory();
    secrecy_cut_environment(d.options.config ? d.options.config->pass_env : NULL,
                            d.options.config ? d.options.config->n_pass_env : 0);
    rc = start(&d, &err);
    if (rc == 0) {
        wait_for_the_end(&d, &signals);
        log_info("stopping; running jobs go on");
    } else {
        fprintf(stderr, "tandemd: %s\n", err.text);
    }
    stop(&d);
    return rc == 0 ? 0 : 1;
}
