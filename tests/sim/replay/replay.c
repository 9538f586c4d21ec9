#include "tests/sim/replay/replay.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "server/audit.h"
#include "server/msg.h"
#include "server/record_mail.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_server.h"

#define LOG_MAX_BYTES ((size_t)RECORD_FRAME_MAX * 2)

struct replay_call {
    struct replay_call *next;
    int64_t id;
    bool is_closed;
    struct caller who;
    char user[65], tenant[65], role[32], peer[64], method[64];
    struct call *call; /* a reference */
};

struct asked {
    struct mail *mail; /* owned */
    int64_t number;
};

struct replaying {
    struct sim sim;
    struct sim_server server;
    struct controller_options options;
    SchedulerConfig *scheduler; /* owned */
    char data_dir[4096];
    struct record_reader file, frame;
    struct replay_call *calls;
    struct buf asked; /* struct asked */
    int64_t num_asked;
    struct replay_result *out;
};

static void diverge(struct replaying *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void diverge(struct replaying *p, const char *fmt, ...)
{
    if (!*p->out->diverged) {
        int n = snprintf(p->out->diverged, sizeof p->out->diverged, "step %ld: ", p->out->steps);
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(p->out->diverged + n, sizeof p->out->diverged - (size_t)n, fmt, ap);
        va_end(ap);
    }
}

/* ---- the world, as it was ---- */

static bool expect(struct replaying *p, enum record_tag tag, const char *what)
{
    int got = record_peek(&p->frame);
    if (got != (int)tag || *p->out->diverged) {
        diverge(p, "the controller %s, in the record stands '%c'", what, got ? got : '.');
        return false;
    }
    record_take(&p->frame);
    return true;
}

static int64_t mono_ms(void *ctx)
{
    struct replaying *p = ctx;
    return expect(p, RECORD_MONO, "reads the monotonic clock") ? record_take_number(&p->frame) : 0;
}

static int64_t wall_us(void *ctx)
{
    struct replaying *p = ctx;
    return expect(p, RECORD_WALL, "reads the clock on the wall") ? record_take_number(&p->frame)
                                                                 : 0;
}

static int64_t busy_ms(void *ctx)
{
    struct replaying *p = ctx;
    return expect(p, RECORD_BUSY, "reads what it has used") ? record_take_number(&p->frame) : 0;
}

static int make_token(void *ctx, char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES],
                      struct error *err)
{
    struct replaying *p = ctx;
    if (!expect(p, RECORD_TOKEN, "makes a token")) {
        return error_set(err, ERR_INTERNAL, "no token");
    }
    size_t len;
    const void *hash = record_take_bytes(&p->frame, &len);
    memset(token, '0', AUTH_TOKEN_SIZE - 1);
    token[AUTH_TOKEN_SIZE - 1] = 0;
    memset(sha256, 0, HASH_BYTES);
    memcpy(sha256, hash, len < HASH_BYTES ? len : HASH_BYTES);
    return 0;
}

static void add_token(void *ctx, int64_t job, int32_t attempt, const uint8_t sha256[HASH_BYTES])
{
    (void)ctx;
    (void)job;
    (void)attempt;
    (void)sha256;
}

static int still_allowed(void *ctx, const struct caller *caller, enum method_access access,
                         struct error *err)
{
    (void)caller;
    (void)access;
    struct replaying *p = ctx;
    bool refused =
        expect(p, RECORD_ALLOWED, "asks for rights") && record_take_number(&p->frame) != 0;
    return refused ? error_set(err, ERR_PERMISSION_DENIED, "as it was recorded") : 0;
}

static bool exists(void *ctx, const char *path)
{
    struct replaying *p = ctx;
    char what[200];
    snprintf(what, sizeof what, "looks for %.150s", path);
    return expect(p, RECORD_EXISTS, what) && record_take_number(&p->frame) != 0;
}

static void deliver(void *ctx, struct out *o)
{
    struct replaying *p = ctx;
    if (!record_is_told(o)) {
        return;
    }
    int64_t kind = expect(p, RECORD_OUT, "says something") ? record_take_number(&p->frame) : -1;
    if (kind != o->kind) {
        diverge(p, "the controller says something of kind %d, in the record it is %lld",
                (int)o->kind, (long long)kind);
    }
    if (o->kind == OUT_LAUNCH || o->kind == OUT_PROBE) {
        struct asked a = {.mail = o->mail, .number = ++p->num_asked};
        buf_append(&p->asked, &a, sizeof a);
        o->mail = NULL;
    } else if (o->kind == OUT_FEED && ((const struct feed_mail *)o->mail)->event) {
        p->out->last_new++;
    }
}

/* ---- mail ---- */

static void nobody_hears(void *peer, const ProtobufCMessage *m)
{
    (void)peer;
    (void)m;
}

static void nobody_minds(void *peer, enum error_code code, const char *text)
{
    (void)peer;
    (void)code;
    (void)text;
}

static struct replay_call *find_call(struct replaying *p, int64_t id)
{
    struct replay_call *c = p->calls;
    while (c && (c->id != id || c->is_closed)) {
        c = c->next;
    }
    return c;
}

static struct replay_call *take_call(struct replaying *p)
{
    static const struct sim_peer peer = {.message = nobody_hears, .end = nobody_minds};
    struct replay_call *c = calloc(1, sizeof *c);
    ASSERT(c);
    c->id = record_take_number(&p->frame);
    record_take_text(&p->frame, c->user, sizeof c->user);
    record_take_text(&p->frame, c->tenant, sizeof c->tenant);
    record_take_text(&p->frame, c->role, sizeof c->role);
    record_take_text(&p->frame, c->peer, sizeof c->peer);
    record_take_text(&p->frame, c->method, sizeof c->method);
    c->who = (struct caller){.user = c->user,
                             .tenant = c->tenant,
                             .role = c->role,
                             .peer = c->peer,
                             .method = c->method};
    c->who.job_id = record_take_number(&p->frame);
    c->who.attempt = (int32_t)record_take_number(&p->frame);
    c->who.token_id = record_take_number(&p->frame);
    struct replay_call *old = find_call(p, c->id);
    if (old && strcmp(c->method, "Worker/Attach") == 0) {
        free(c);
        return old;
    }
    if (old) {
        old->is_closed = true; /* its address was used again */
    }
    c->call = sim_call_new(&p->sim, &c->who, &peer, c);
    c->next = p->calls;
    p->calls = c;
    return c;
}

static const struct method *find_method(const char *name)
{
    const struct method *const tables[] = {svc_jobs_methods, svc_plans_methods, svc_worker_methods,
                                           svc_cluster_methods, svc_admin_methods};
    char path[128];
    snprintf(path, sizeof path, "/tandem.v1.%s", name);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const struct method *m = tables[i]; m->path; m++) {
            if (strcmp(m->path, path) == 0) {
                return m;
            }
        }
    }
    return NULL;
}

static void take_request(struct replaying *p)
{
    struct replay_call *c = take_call(p);
    size_t len;
    const uint8_t *data = record_take_bytes(&p->frame, &len);
    const struct method *method = find_method(c->method);
    ProtobufCMessage *m =
        method ? protobuf_c_message_unpack(method->request, NULL, len, data) : NULL;
    if (m) {
        method->on_message(&p->server.app, c->call, m);
    } else {
        diverge(p, "a request of %s can't be read", c->method);
    }
    msg_free(m);
}

static void take_closed(struct replaying *p)
{
    struct replay_call *c = find_call(p, record_take_number(&p->frame));
    if (c) {
        c->is_closed = true;
        svc_worker_methods[0].on_closed(&p->server.app, c->call);
    }
}

static void take_answer(struct replaying *p, bool is_probe)
{
    int64_t number = record_take_number(&p->frame);
    struct asked *all = (struct asked *)(void *)p->asked.data;
    size_t num = p->asked.len / sizeof *all, i = 0;
    while (i < num && all[i].number != number) {
        i++;
    }
    if (i == num) {
        diverge(p, "the answer to question %lld, which was not asked", (long long)number);
        return;
    }
    struct mail *m = all[i].mail;
    all[i] = all[num - 1];
    p->asked.len -= sizeof *all;
    if (is_probe) {
        record_mail_take_probe(&p->frame, (struct probe_mail *)m);
        m->run = ((struct probe_mail *)m)->then;
    } else {
        record_mail_take_launch(&p->frame, (struct launch_mail *)m);
        m->run = ((struct launch_mail *)m)->then;
    }
    mailbox_post(controller_mailbox(p->server.app.controller), &m->node);
}

static int do_nothing(void *controller, struct mail *m, struct error *err)
{
    (void)controller;
    (void)m;
    (void)err;
    return 0;
}

static void post_nothing(struct replaying *p)
{
    struct mail *m = mail_new(sizeof *m, do_nothing, NULL, NULL);
    mailbox_post(controller_mailbox(p->server.app.controller), &m->node);
}

/* False: it was the last step. */
static bool take_mail(struct replaying *p)
{
    for (;;) {
        switch (record_peek(&p->frame)) {
        case RECORD_REQUEST:
            record_take(&p->frame);
            take_request(p);
            break;
        case RECORD_CLOSED:
            record_take(&p->frame);
            take_closed(p);
            break;
        case RECORD_LAUNCH:
        case RECORD_PROBE:
            take_answer(p, record_take(&p->frame) == RECORD_PROBE);
            break;
        case RECORD_OTHER:
            record_take(&p->frame);
            post_nothing(p);
            break;
        case RECORD_STOPPED:
            p->out->is_whole = true;
            return false;
        default:
            return !p->frame.bad && !*p->out->diverged;
        }
    }
}

static bool has_failed(const struct replaying *p)
{
    int last = p->frame.len ? p->frame.data[p->frame.len - 1] : 0;
    return last == RECORD_FAILED && record_peek(&p->frame) == RECORD_MONO;
}

static bool one_step(struct replaying *p)
{
    p->out->last_new = 0;
    if (!take_mail(p)) {
        return false;
    }
    if (has_failed(p)) {
        /* What failed can't be made to fail again; what went before it is replayed. */
        mail_free_chain(mailbox_take(controller_mailbox(p->server.app.controller), 0));
        p->out->is_cut = true;
        return false;
    }
    struct mailbox_node *chain = mailbox_take(controller_mailbox(p->server.app.controller), 0);
    if (!chain) {
        post_nothing(p); /* without mail, too, the step took place */
        chain = mailbox_take(controller_mailbox(p->server.app.controller), 0);
    }
    controller_step(p->server.app.controller, chain);
    if (record_peek(&p->frame) == RECORD_FULL) {
        p->out->is_cut = true;
        return false;
    }
    if (record_peek(&p->frame)) {
        diverge(p, "the record has more: '%c'", record_peek(&p->frame));
    }
    return !*p->out->diverged;
}

/* ---- a session ---- */

static int take_head(struct replaying *p, struct error *err)
{
    char version[64];
    if (!record_next_frame(&p->file, &p->frame) || record_take(&p->frame) != RECORD_OPEN) {
        return error_set(err, ERR_DATA_LOSS, "the record has no beginning");
    }
    record_take_text(&p->frame, version, sizeof version);
    record_take_text(&p->frame, p->data_dir, sizeof p->data_dir);
    size_t len, cluster_len;
    const void *host = record_take_bytes(&p->frame, &len);
    const void *packed = record_take_bytes(&p->frame, &cluster_len);
    struct topology_host look;
    if (strcmp(version, TANDEM_VERSION) != 0 || len != sizeof look) {
        return error_set(err, ERR_FAILED_PRECONDITION, "the record is of version %s, this is %s",
                         version, TANDEM_VERSION);
    }
    memcpy(&look, host, len);
    ClusterSpec *cluster = cluster_spec__unpack(NULL, cluster_len, packed);
    if (!cluster) {
        return error_set(err, ERR_DATA_LOSS, "the record's cluster can't be read");
    }
    if (topology_new(&p->options.topology, &look, cluster, 0, err) != 0) {
        return -1;
    }
    p->options.lease_ms = record_take_number(&p->frame);
    p->options.tenant_queued_jobs = (int32_t)record_take_number(&p->frame);
    packed = record_take_bytes(&p->frame, &len);
    p->scheduler = scheduler_config__unpack(NULL, len, packed);
    p->options.scheduler = p->scheduler;
    return 0;
}

static int open_all(struct replaying *p, const char *db, struct error *err)
{
    p->sim.server = &p->server;
    p->sim.disk = sim_disk_new(&p->sim.rng);
    p->server.up = true;
    p->server.generation = 1;
    p->server.app.data_dir = p->data_dir;
    sim_set_current(&p->sim);
    p->options.data_dir = p->data_dir;
    p->options.bin_dir = "/";
    p->options.worker_addr = "unix:/";
    p->options.world = (struct world){.ctx = p,
                                      .mono_ms = mono_ms,
                                      .wall_us = wall_us,
                                      .busy_ms = busy_ms,
                                      .make_token = make_token,
                                      .add_token = add_token,
                                      .still_allowed = still_allowed,
                                      .exists = exists,
                                      .deliver = deliver};
    if (audit_new(&p->server.app.audit) != 0 || store_open(&p->options.store, db, err) != 0) {
        topology_free(p->options.topology);
        return -1;
    }
    if (controller_new(&p->server.app.controller, &p->options, err) != 0) {
        topology_free(p->options.topology);
        store_close(p->options.store);
        return -1;
    }
    return controller_open(p->server.app.controller, err);
}

static void close_all(struct replaying *p)
{
    controller_free(p->server.app.controller);
    struct asked *all = (struct asked *)(void *)p->asked.data;
    for (size_t i = 0; i < p->asked.len / sizeof *all; i++) {
        mail_free(all[i].mail);
    }
    buf_free(&p->asked);
    while (p->calls) {
        struct replay_call *c = p->calls;
        p->calls = c->next;
        call_unref(c->call);
        free(c);
    }
    audit_free(p->server.app.audit);
    sim_disk_free(p->sim.disk);
    sim_set_current(NULL);
}

int replay_run(const char *log, const char *db, struct replay_result *out, struct error *err)
{
    char *text;
    size_t len;
    if (fs_read_file(log, LOG_MAX_BYTES, &text, &len, err) != 0) {
        return -1;
    }
    *out = (struct replay_result){0};
    sim_trace_begin(false);
    struct replaying p = {.out = out, .file = {.data = (const uint8_t *)text, .len = len, .at = 8}};
    int rc = len < 8 || memcmp(text, RECORD_MAGIC, 8) != 0
                 ? error_set(err, ERR_DATA_LOSS, "%s is not a record", log)
                 : take_head(&p, err);
    if (rc == 0) {
        rc = open_all(&p, db, err);
        while (rc == 0 && record_next_frame(&p.file, &p.frame)) {
            out->steps++;
            if (!one_step(&p)) {
                break;
            }
        }
        close_all(&p);
    }
    scheduler_config__free_unpacked(p.scheduler, NULL);
    free(text);
    return rc;
}
