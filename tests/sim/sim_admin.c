#include "tests/sim/sim_admin.h"
#include <stdlib.h>
#include <string.h>

#include "server/msg.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_server.h"

#define ANSWER_US 5000000
#define AGAIN_US 700000

const char *const sim_tenants[SIM_TENANTS_MAX] = {"default", "red", "green", "blue"};
static const struct sim_quota free_quota = {-1, -1, 1};

/* One request on its way. */
struct request {
    struct sim *sim;
    struct call *call; /* a reference, until the answer or the timeout */
    int64_t generation;
    bool waiting;
    int refs;
};

/* ---- what is true ---- */

/* Bits that the wish, once done, leaves of that row; 0 = it is not about it. */
static int row_after(const struct sim *s, const struct sim_wish *w, int32_t node, int32_t device)
{
    if (w->kind == WISH_DRAIN && w->device == device && (device >= 0 || w->node == node)) {
        return w->let_finish ? SIM_DRAIN_SOFT : SIM_DRAIN_HARD;
    }
    if (w->kind == WISH_UNDRAIN) {
        int32_t of = device >= 0 ? s->cluster->places[device].node : node;
        bool about = w->device >= 0 ? w->device == device : w->node == of;
        return about ? SIM_DRAIN_NONE : 0;
    }
    return 0;
}

static void note_rows(struct sim *s, const struct sim_wish *w, bool done)
{
    struct sim_admin *a = s->admin;
    for (int32_t n = 0; n < s->cluster->num_nodes; n++) {
        int after = row_after(s, w, n, -1);
        a->nodes[n] = after && done ? after : a->nodes[n] | after;
    }
    for (int32_t d = 0; d < s->cluster->num_devices; d++) {
        int after = row_after(s, w, -1, d);
        a->devices[d] = after && done ? after : a->devices[d] | after;
    }
}

static bool is_set(int bits, bool hard)
{
    return hard ? bits == SIM_DRAIN_HARD : !(bits & SIM_DRAIN_NONE);
}

uint64_t sim_admin_drained(const struct sim *s, bool hard)
{
    uint64_t mask = 0;
    for (int32_t d = 0; d < s->cluster->num_devices; d++) {
        bool drained = is_set(s->admin->devices[d], hard) ||
                       is_set(s->admin->nodes[s->cluster->places[d].node], hard);
        mask |= drained ? (uint64_t)1 << d : 0;
    }
    return mask;
}

static uint64_t with_any(const struct sim *s, int wanted)
{
    uint64_t mask = 0;
    for (int32_t d = 0; d < s->cluster->num_devices; d++) {
        int bits = s->admin->devices[d] | s->admin->nodes[s->cluster->places[d].node];
        mask |= bits & wanted ? (uint64_t)1 << d : 0;
    }
    return mask;
}

uint64_t sim_admin_maybe_drained(const struct sim *s)
{
    return with_any(s, SIM_DRAIN_HARD | SIM_DRAIN_SOFT);
}

uint64_t sim_admin_maybe_hard(const struct sim *s)
{
    return with_any(s, SIM_DRAIN_HARD);
}

static bool same_quota(const struct sim_quota *a, const struct sim_quota *b)
{
    return a->devices == b->devices && a->max_devices == b->max_devices &&
           !(a->weight < b->weight || a->weight > b->weight);
}

bool sim_admin_may_be(const struct sim *s, int32_t tenant, const struct sim_quota *q)
{
    const struct sim_admin *a = s->admin;
    bool asked = a->wish.kind == WISH_QUOTA && a->wish.tenant == tenant && !a->answered;
    return same_quota(q, &a->quotas[tenant]) || (asked && same_quota(q, &a->wish.quota));
}

/* ---- answers ---- */

static void release(struct request *r)
{
    if (--r->refs == 0) {
        free(r);
    }
}

static void let_call_go(struct request *r)
{
    if (r->call) {
        struct call *c = r->call;
        r->call = NULL;
        sim_call_over(c);
        call_unref(c);
    }
}

static void drop_request(struct sim *s, void *arg, int64_t n)
{
    (void)s;
    (void)n;
    let_call_go(arg);
    release(arg);
}

static void send_wish(struct sim *s);

static void again(struct sim *s, void *arg, int64_t n)
{
    (void)arg;
    (void)n;
    send_wish(s);
}

static void rest(struct sim_admin *a)
{
    if (a->answered && a->open == 0) {
        a->wish.kind = WISH_NOTHING;
    }
}

static bool is_refused_for_good(enum error_code code)
{
    return code == ERR_NOT_FOUND || code == ERR_FAILED_PRECONDITION;
}

static void answered(struct sim *s, void *arg, int64_t code)
{
    struct request *r = arg;
    struct sim_admin *a = s->admin;
    if (r->waiting) {
        r->waiting = false;
        sim_trace(s->now_us, "the operator hears: %s", error_code_name((enum error_code)code));
        bool drains = a->wish.kind != WISH_QUOTA;
        if (code == ERR_OK) {
            note_rows(s, &a->wish, true);
            a->quotas[a->wish.tenant] = drains ? a->quotas[a->wish.tenant] : a->wish.quota;
            a->answered = true;
        } else if (drains && is_refused_for_good((enum error_code)code)) {
            a->answered = true; /* a repeat of it: what came before may have done it */
        } else if (code == ERR_UNAVAILABLE || code == ERR_RESOURCE_EXHAUSTED ||
                   code == ERR_DEADLINE_EXCEEDED || code == ERR_INTERNAL) {
            sim_after(s, AGAIN_US, again, NULL, NULL, 0);
        } else {
            sim_fail(s, "the operator is refused: %s", error_code_name((enum error_code)code));
        }
    }
    let_call_go(r);
    release(r);
    rest(a);
}

static void answer_after(struct request *r, int64_t delay_us, int64_t code)
{
    r->refs++;
    sim_after(r->sim, delay_us, answered, drop_request, r, code);
}

static void on_message(void *peer, const ProtobufCMessage *m)
{
    (void)m;
    struct request *r = peer;
    if (!sim_strikes(r->sim, r->sim->profile->lose_reply)) {
        answer_after(r, sim_net_us(r->sim), ERR_OK);
    }
}

static void on_end(void *peer, enum error_code code, const char *text)
{
    struct request *r = peer;
    sim_trace(r->sim->now_us, "  refused: %s", text);
    answer_after(r, sim_net_us(r->sim), code);
}

static void on_freed(void *peer)
{
    struct request *r = peer;
    r->sim->admin->open--;
    rest(r->sim->admin);
    release(r);
}

/* ---- sending ---- */

static ProtobufCMessage *make_message(const struct sim *s, const struct sim_wish *w)
{
    if (w->kind == WISH_QUOTA) {
        SetQuotaRequest *q = msg_new(&set_quota_request__descriptor);
        msg_text(&q->tenant, sim_tenants[w->tenant]);
        MSG_SET(q, devices, w->quota.devices);
        MSG_SET(q, max_devices, w->quota.max_devices);
        MSG_SET(q, weight, w->quota.weight);
        return &q->base;
    }
    DrainRequest *d = msg_new(&drain_request__descriptor);
    msg_text(&d->node, s->cluster->names[w->node]);
    if (w->device >= 0) {
        MSG_SET(d, device, s->cluster->places[w->device].index);
    }
    if (w->kind == WISH_DRAIN) {
        msg_text(&d->reason, "disk");
        MSG_SET(d, let_finish, w->let_finish);
    }
    return &d->base;
}

static const struct method *find_method(enum sim_wish_kind kind)
{
    const char *path = kind == WISH_QUOTA   ? "/tandem.v1.Admin/SetQuota"
                       : kind == WISH_DRAIN ? "/tandem.v1.Cluster/Drain"
                                            : "/tandem.v1.Cluster/Undrain";
    const struct method *m = kind == WISH_QUOTA ? svc_admin_methods : svc_cluster_methods;
    while (strcmp(m->path, path) != 0) {
        m++;
    }
    return m;
}

static void arrive(struct sim *s, void *arg, int64_t n)
{
    (void)n;
    struct request *r = arg;
    if (r->call && s->server->up && s->server->generation == r->generation) {
        ProtobufCMessage *m = make_message(s, &s->admin->wish);
        find_method(s->admin->wish.kind)->on_message(&s->server->app, r->call, m);
        msg_free(m);
    } else {
        answer_after(r, 1000, ERR_UNAVAILABLE);
    }
    release(r);
}

static void send_wish(struct sim *s)
{
    static const struct sim_peer peer = {.message = on_message, .end = on_end, .freed = on_freed};
    static const struct caller who = {.user = "dev",
                                      .tenant = "default",
                                      .role = "admin",
                                      .peer = "unix",
                                      .method = "Admin/Change"};
    struct request *r = calloc(1, sizeof *r);
    ASSERT(r);
    *r =
        (struct request){.sim = s, .generation = s->server->generation, .waiting = true, .refs = 2};
    s->admin->open++;
    r->call = sim_call_new(s, &who, &peer, r);
    sim_after(s, sim_net_us(s), arrive, drop_request, r, 0);
    answer_after(r, ANSWER_US, ERR_DEADLINE_EXCEEDED);
}

static void wish_for(struct sim *s, const struct sim_wish *w)
{
    static const char *const names[] = {"nothing", "a quota", "a drain", "an undrain"};
    struct sim_admin *a = s->admin;
    a->wish = *w;
    a->answered = false;
    note_rows(s, w, false);
    if (w->kind == WISH_QUOTA) {
        sim_trace(s->now_us, "the operator asks for a quota: %s has %lld, at most %lld",
                  sim_tenants[w->tenant], (long long)w->quota.devices,
                  (long long)w->quota.max_devices);
    } else {
        sim_trace(s->now_us, "the operator asks for %s of %s, device %d%s", names[w->kind],
                  s->cluster->names[w->node],
                  w->device < 0 ? -1 : s->cluster->places[w->device].index,
                  w->let_finish ? ", jobs finish" : "");
    }
    send_wish(s);
}

/* ---- what it does ---- */

static void change_quota(struct sim *s)
{
    struct sim_wish w = {.kind = WISH_QUOTA, .quota = free_quota};
    w.tenant = (int32_t)sim_rng_between(&s->rng, 0, s->profile->tenants - 1);
    if (sim_rng_chance(&s->rng, 0.7)) {
        w.quota.devices = sim_rng_between(&s->rng, 0, s->cluster->num_devices);
    }
    if (sim_rng_chance(&s->rng, 0.4)) {
        int64_t least = w.quota.devices > 0 ? w.quota.devices : 0;
        w.quota.max_devices = sim_rng_between(&s->rng, least, s->cluster->num_devices);
    }
    w.quota.weight = (double)sim_rng_between(&s->rng, 1, 3);
    wish_for(s, &w);
}

static struct sim_wish pick_place(struct sim *s, enum sim_wish_kind kind)
{
    int32_t d = (int32_t)sim_rng_between(&s->rng, 0, s->cluster->num_devices - 1);
    struct sim_wish w = {.kind = kind, .node = s->cluster->places[d].node, .device = d};
    if (sim_rng_chance(&s->rng, 0.4)) {
        w.device = -1;
    }
    return w;
}

void sim_admin_act(struct sim *s)
{
    const struct sim_profile *p = s->profile;
    if (s->admin->wish.kind != WISH_NOTHING) {
        return;
    }
    if (sim_strikes(s, p->quotas)) {
        change_quota(s);
    } else if (sim_strikes(s, p->drain)) {
        struct sim_wish w = pick_place(s, WISH_DRAIN);
        w.let_finish = sim_rng_chance(&s->rng, 0.3);
        wish_for(s, &w);
    } else if (sim_strikes(s, p->undrain)) {
        struct sim_wish w = pick_place(s, WISH_UNDRAIN);
        wish_for(s, &w);
    }
}

void sim_admin_settle(struct sim *s)
{
    const struct sim_admin *a = s->admin;
    if (a->wish.kind != WISH_NOTHING || s->cluster->file != s->cluster->all) {
        return;
    }
    for (int32_t t = 0; t < SIM_TENANTS_MAX; t++) {
        if (!same_quota(&a->quotas[t], &free_quota)) {
            wish_for(s, &(struct sim_wish){.kind = WISH_QUOTA, .tenant = t, .quota = free_quota});
            return;
        }
    }
    for (int32_t d = 0; d < s->cluster->num_devices; d++) {
        int32_t n = s->cluster->places[d].node;
        if (a->devices[d] != SIM_DRAIN_NONE || a->nodes[n] != SIM_DRAIN_NONE) {
            wish_for(s, &(struct sim_wish){.kind = WISH_UNDRAIN, .node = n, .device = -1});
            return;
        }
    }
}

void sim_admin_new(struct sim *s)
{
    struct sim_admin *a = s->admin = calloc(1, sizeof *a);
    ASSERT(a);
    for (int32_t i = 0; i < SIM_TENANTS_MAX; i++) {
        a->quotas[i] = free_quota;
    }
    for (int32_t i = 0; i < SIM_NODES_MAX; i++) {
        a->nodes[i] = SIM_DRAIN_NONE;
    }
    for (int32_t i = 0; i < SIM_DEVICES_MAX; i++) {
        a->devices[i] = SIM_DRAIN_NONE;
    }
}

void sim_admin_free(struct sim *s)
{
    free(s->admin);
}
