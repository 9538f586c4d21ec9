/* A world before it begins: cluster, tenants, jobs, and all that is going to disturb them. */
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "tests/sched/world.h"

#define MINUTE 60000
#define COUNT(a) ((int32_t)(sizeof(a) / sizeof(a)[0]))

const struct world_profile world_profiles[] = {
    /* clang-format off */
    {.name = "gangs", .jobs_min = 8, .jobs_max = 32, .limits = .4, .known_ends = .5, .shapes = .6,
     .priorities = .3, .fails = .1, .disturbances = 10, .kinds = "cdx"},
    {.name = "reserve", .jobs_min = 8, .jobs_max = 40, .limits = 1, .known_ends = 1, .shapes = .4,
     .exact = true},
    {.name = "preempt", .jobs_min = 8, .jobs_max = 36, .preemption = 1, .quotas = .3,
     .priorities = .7, .limits = .3, .known_ends = .5, .stubborn = .3, .shapes = .5, .fails = .1,
     .disturbances = 8, .kinds = "cxp"},
    {.name = "quotas", .jobs_min = 12, .jobs_max = 40, .preemption = .7, .quotas = .9,
     .priorities = .3, .limits = .3, .known_ends = .5, .stubborn = .2, .shapes = .4,
     .disturbances = 12, .kinds = "cqx"},
    {.name = "drains", .jobs_min = 8, .jobs_max = 28, .preemption = .5, .quotas = .3,
     .priorities = .3, .limits = .3, .known_ends = .5, .stubborn = .3, .shapes = .6,
     .disturbances = 20, .kinds = "ddsx"},
    {.name = "order", .jobs_min = 12, .jobs_max = 40, .preemption = .3, .quotas = .2,
     .priorities = .8, .aging = .6, .limits = .5, .known_ends = .5, .afters = .3, .shapes = .3,
     .disturbances = 20, .kinds = "hppc"},
    {.name = "all", .jobs_min = 8, .jobs_max = 44, .preemption = .8, .quotas = .5,
     .priorities = .5, .aging = .5, .fair_share = .5, .limits = .4, .known_ends = .5,
     .afters = .15, .fails = .15, .stubborn = .3, .shapes = .5, .disturbances = 30,
     .kinds = "chpdqxs"},
    {.name = NULL},
    /* clang-format on */
};

const struct world_profile *world_profile(const char *name)
{
    const struct world_profile *p = world_profiles;
    while (p->name && strcmp(p->name, name) != 0) {
        p++;
    }
    return p->name ? p : NULL;
}

/* ---- the cluster ---- */

static void *fresh(const ProtobufCMessageDescriptor *d)
{
    void *m = calloc(1, d->sizeof_message);
    ASSERT(m);
    protobuf_c_message_init(d, m);
    return m;
}

static void push(void *list, size_t *num, void *item)
{
    void ***items = list;
    *items = realloc(*items, (*num + 1) * sizeof **items);
    ASSERT(*items);
    (*items)[(*num)++] = item;
}

/* "new-leaf3b" */
static char *text_of(const char *name, const char *part, int64_t number, const char *end)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s%d%s", name, part, (int)number, end);
    return strdup(text);
}

/* Nodes that are all alike. Per domain 1: each node is one; per leaf 0: no switches. */
static void add_nodes(ClusterSpec *c, const char *name, int64_t nodes, int64_t devices,
                      const char *type, int64_t per_domain, int64_t per_leaf)
{
    for (int64_t n = 0; n < nodes; n++) {
        NodeInfo *node = fresh(&node_info__descriptor);
        node->name = text_of(name, "", n, "");
        for (int64_t d = 0; d < devices; d++) {
            DeviceInfo *device = fresh(&device_info__descriptor);
            device->type = strdup(type);
            device->domain = per_domain > 1 ? text_of(name, "-domain", n / per_domain, "") : NULL;
            push(&node->devices, &node->n_devices, device);
        }
        if (per_leaf > 0) {
            push(&node->switches, &node->n_switches, text_of(name, "-leaf", n / per_leaf, ""));
            push(&node->switches, &node->n_switches, text_of("spine", "", 0, ""));
        }
        push(&c->nodes, &c->n_nodes, node);
    }
}

/* A host whose CPU devices are split into nodes, each with two domains of its own. */
static void add_split_host(ClusterSpec *c, struct sim_rng *rng)
{
    int64_t nodes = sim_rng_between(rng, 1, 4), half = sim_rng_between(rng, 1, 3);
    for (int64_t n = 0; n < nodes; n++) {
        NodeInfo *node = fresh(&node_info__descriptor);
        node->name = text_of("part", "", n, "");
        for (int64_t d = 0; d < 2 * half; d++) {
            DeviceInfo *device = fresh(&device_info__descriptor);
            device->domain = text_of("part", "", n, d < half ? "-a" : "-b");
            push(&node->devices, &node->n_devices, device);
        }
        push(&c->nodes, &c->n_nodes, node);
    }
}

struct fabric *world_fabric(struct sim_rng *rng)
{
    ClusterSpec *c = fresh(&cluster_spec__descriptor);
    switch (sim_rng_between(rng, 0, 4)) {
    case 0:
        add_split_host(c, rng);
        break;
    case 1:
        add_nodes(c, "dgx", sim_rng_between(rng, 1, 6), 8, "h100", 1, sim_rng_between(rng, 0, 3));
        break;
    case 2: {
        int64_t per_domain = sim_rng_between(rng, 2, 3);
        add_nodes(c, "rack", per_domain * sim_rng_between(rng, 1, 3), 4, "gb200", per_domain, 0);
        break;
    }
    case 3:
        add_nodes(c, "new", sim_rng_between(rng, 1, 3), 8, "h100", 1, 2);
        add_nodes(c, "old", sim_rng_between(rng, 1, 3), 4, "a100", 1, 2);
        add_nodes(c, "plain", sim_rng_between(rng, 1, 2), sim_rng_between(rng, 2, 6), "cpu", 1, 0);
        break;
    default:
        add_nodes(c, "odd", sim_rng_between(rng, 1, 5), sim_rng_between(rng, 3, 10), "cpu", 1,
                  sim_rng_between(rng, 0, 3));
    }
    struct error err = {0};
    struct fabric *f = NULL;
    if (cluster_check("world", c, &err) != 0 || fabric_new(&f, c, &err) != 0) {
        fprintf(stderr, "a cluster of the world: %s\n", err.text);
        abort();
    }
    cluster_spec__free_unpacked(c, NULL);
    return f;
}

/* ---- tenants and options ---- */

static void make_options(struct world *w, struct sim_rng *rng)
{
    const struct world_profile *p = w->profile;
    w->options = (struct sched_options){
        .preemption = sim_rng_chance(rng, p->preemption),
        .backfill = p->exact || sim_rng_chance(rng, .8),
        .max_evictions = (int32_t)sim_rng_between(rng, 1, 3),
        .min_run_ms = sim_rng_between(rng, 0, 3) * MINUTE,
        .grace_ms = sim_rng_between(rng, 1, 3) * MINUTE,
        .fair_share = sim_rng_chance(rng, p->fair_share) ? 100 : 0,
    };
    if (sim_rng_chance(rng, p->aging)) {
        w->options.aging_per_h = (double)sim_rng_between(rng, 10, 600);
        w->options.aging_max = (int32_t)sim_rng_between(rng, 50, 500);
    }
    w->num_tenants = (int32_t)sim_rng_between(rng, 1, p->exact ? 1 : WORLD_MAX_TENANTS);
    for (int32_t t = 0; t < w->num_tenants; t++) {
        snprintf(w->tenant_names[t], sizeof w->tenant_names[t], "team%d", t);
        struct sched_tenant *s = &w->tenants[t];
        *s = (struct sched_tenant){w->tenant_names[t], -1, -1, (double)sim_rng_between(rng, 1, 3),
                                   0};
        if (sim_rng_chance(rng, p->quotas)) {
            s->quota = sim_rng_between(rng, 0, w->fabric->num_devices);
            s->max = sim_rng_chance(rng, .5)
                         ? s->quota + sim_rng_between(rng, 0, w->fabric->num_devices / 2)
                         : -1;
        }
        w->born[t] = *s;
    }
}

/* ---- jobs ---- */

static int32_t pick(struct sim_rng *rng, const int32_t *of, int32_t num)
{
    return of[sim_rng_between(rng, 0, num - 1)];
}

static void make_shape(struct world *w, struct world_job *j, struct sim_rng *rng)
{
    static const int32_t tensors[] = {1, 2, 2, 4, 8, 3}, few[] = {1, 1, 1, 2, 2, 3};
    struct place_request *r = &j->place;
    const struct fabric *f = w->fabric;
    *r = (struct place_request){1, 1, 1, 1, 1, 0, .type = "any"};
    if (sim_rng_chance(rng, w->profile->shapes)) {
        r->tensor = pick(rng, tensors, COUNT(tensors));
        r->pipeline = pick(rng, few, COUNT(few));
        r->context = pick(rng, few, COUNT(few));
    }
    int32_t inner = r->tensor * r->pipeline * r->context;
    int32_t room = f->num_devices / inner;
    r->data = (int32_t)(sim_rng_chance(rng, .15) ? sim_rng_between(rng, 1, room + 1)
                                                 : 1 + sim_rng_delay(rng, 0, room));
    if (sim_rng_chance(rng, w->profile->shapes / 3)) {
        r->expert = r->data;
    }
    if (sim_rng_chance(rng, .3)) {
        r->type = f->types[sim_rng_between(rng, 0, f->num_types - 1)].name;
    }
    if (sim_rng_chance(rng, .1)) {
        for (int32_t n = 0; n < f->num_nodes && r->num_nodes < WORLD_MAX_NODES; n++) {
            if (sim_rng_chance(rng, .6)) {
                j->nodes[r->num_nodes++] = f->nodes[n].name;
            }
        }
        r->nodes = j->nodes;
    }
    r->one_node = j->id % 7 == 3;
    j->num_devices = r->data * inner;
}

static void make_job(struct world *w, struct world_job *j, struct sim_rng *rng)
{
    const struct world_profile *p = w->profile;
    j->id = (int64_t)(j - w->jobs) + 1;
    j->tenant = (int32_t)sim_rng_between(rng, 0, w->num_tenants - 1);
    j->priority =
        sim_rng_chance(rng, p->priorities) ? 100 * (int32_t)sim_rng_between(rng, 1, 9) : 500;
    make_shape(w, j, rng);
    j->work_ms = sim_rng_between(rng, 1, 40) * MINUTE / (sim_rng_chance(rng, .2) ? 7 : 1);
    j->ckpt_every_ms = sim_rng_between(rng, 1, 10) * MINUTE;
    if (sim_rng_chance(rng, p->limits)) {
        j->limit_ms =
            p->exact ? j->work_ms : j->work_ms * sim_rng_between(rng, 80, 300) / 100 + MINUTE;
    }
    j->known_end = sim_rng_chance(rng, p->known_ends);
    if (j->id > 1 && sim_rng_chance(rng, p->afters)) {
        j->after = sim_rng_between(rng, 1, j->id - 1);
    }
    j->num_fails = sim_rng_chance(rng, p->fails) ? (int32_t)sim_rng_between(rng, 1, 2) : 0;
    j->head_ms = j->promised_ms = j->first_start_ms = -1;
}

/* ---- events ---- */

static void add(struct world *w, int64_t at_ms, enum world_kind kind, int64_t what, int64_t value,
                int64_t more)
{
    if (w->num_events < WORLD_MAX_EVENTS) {
        w->events[w->num_events++] = (struct world_event){at_ms, kind, (int32_t)what, value, more};
    }
}

static void disturb(struct world *w, struct sim_rng *rng, int64_t end_ms)
{
    int64_t at = sim_rng_between(rng, 0, end_ms);
    int64_t until = at + sim_rng_between(rng, 1, 40) * MINUTE;
    int64_t job = sim_rng_between(rng, 0, w->num_jobs - 1);
    int64_t device = sim_rng_between(rng, 0, w->fabric->num_devices - 1);
    int64_t tenant = sim_rng_between(rng, 0, w->num_tenants - 1);
    int64_t num = sim_rng_chance(rng, .5) ? 1 : w->fabric->nodes[0].num_devices;
    bool flag = sim_rng_chance(rng, .4);
    const char *kinds = w->profile->kinds;
    switch (kinds[sim_rng_between(rng, 0, (int64_t)strlen(kinds) - 1)]) {
    case 'c':
        add(w, at, EV_CANCEL, job, 0, 0);
        break;
    case 'h':
        add(w, at, EV_HOLD, job, 0, 0);
        add(w, until, EV_RELEASE, job, 0, 0);
        break;
    case 'p':
        add(w, at, EV_PRIORITY, job, 100 * sim_rng_between(rng, 1, 9), 0);
        break;
    case 'd':
        add(w, at, EV_DRAIN, device, num, flag);
        add(w, until, EV_UNDRAIN, device, num, 0);
        break;
    case 'q':
        add(w, at, EV_QUOTA, tenant, sim_rng_between(rng, -1, w->fabric->num_devices),
            flag ? sim_rng_between(rng, 0, w->fabric->num_devices) : -1);
        break;
    case 'x':
        add(w, at, EV_CRASH, 0, flag ? 0 : sim_rng_between(rng, 0, 5) * MINUTE, 0);
        break;
    default:
        add(w, at, EV_STICK, job, sim_rng_between(rng, 1, 30) * MINUTE, 0);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct world_event *x = a, *y = b;
    return x->at_ms != y->at_ms ? (x->at_ms > y->at_ms) - (x->at_ms < y->at_ms)
                                : (x->kind > y->kind) - (x->kind < y->kind);
}

static void make_events(struct world *w, struct sim_rng *rng)
{
    int64_t at = 0, gap = sim_rng_between(rng, 0, 12) * MINUTE;
    for (int32_t i = 0; i < w->num_jobs; i++) {
        add(w, at, EV_SUBMIT, i, 0, 0);
        at += sim_rng_chance(rng, .4) ? 0 : sim_rng_delay(rng, 0, 2 * gap);
    }
    for (int32_t i = 0; i < w->profile->disturbances; i++) {
        disturb(w, rng, at + 60 * MINUTE);
    }
    qsort(w->events, (size_t)w->num_events, sizeof *w->events, by_time);
    w->calm_ms = w->num_events ? w->events[w->num_events - 1].at_ms + MINUTE : MINUTE;
}

struct world *world_new(uint64_t seed, const struct world_profile *p)
{
    struct sim_rng rng = {seed * 0x9E3779B97F4A7C15u + (uint64_t)p->jobs_max * 7 +
                          (uint64_t)p->disturbances};
    struct world *w = calloc(1, sizeof *w);
    ASSERT(w);
    w->profile = p;
    w->seed = seed;
    w->fabric = world_fabric(&rng);
    w->no_backfill_from_ms = SCHED_NEVER;
    w->drained = calloc((size_t)w->fabric->num_devices, sizeof *w->drained);
    w->let_finish = calloc((size_t)w->fabric->num_devices, sizeof *w->let_finish);
    ASSERT(w->drained && w->let_finish);
    make_options(w, &rng);
    w->num_jobs = (int32_t)sim_rng_between(&rng, p->jobs_min, p->jobs_max);
    for (int32_t i = 0; i < w->num_jobs; i++) {
        make_job(w, &w->jobs[i], &rng);
    }
    make_events(w, &rng);
    struct error err = {0};
    ASSERT(sched_new(&w->sched, w->fabric, &err) == 0);
    return w;
}

void world_free(struct world *w)
{
    if (!w) {
        return;
    }
    for (int32_t i = 0; i < w->num_jobs; i++) {
        device_set_free(w->jobs[i].claim);
        device_set_free(w->jobs[i].set);
        free(w->jobs[i].devices);
    }
    sched_free(w->sched);
    fabric_free(w->fabric);
    free(w->drained);
    free(w->let_finish);
    free(w);
}
