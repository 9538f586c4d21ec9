/* The trace: like what is told of real training clusters, in round figures, and all of a seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "tests/bench/month.h"
#include "tests/sim/sim_rng.h"

#define HOUR_MS 3600000
#define DAY_MS (24 * (int64_t)HOUR_MS)

static const struct {
    int32_t size;
    double part;
} sizes[] = {{1, .26},  {2, .12},   {4, .12},   {8, .25},    {16, .10},   {32, .065},
             {64, .05}, {128, .02}, {256, .01}, {512, .004}, {1024, .001}};

static double normal(struct sim_rng *rng)
{
    double u = 1 - sim_rng_unit(rng);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * sim_rng_unit(rng));
}

static void *fresh(const ProtobufCMessageDescriptor *d)
{
    void *m = calloc(1, d->sizeof_message);
    ASSERT(m);
    protobuf_c_message_init(d, m);
    return m;
}

/* DGX-like: 8 devices a node, 32 nodes under a leaf switch. */
static struct fabric *make_fabric(int32_t nodes)
{
    ClusterSpec *c = fresh(&cluster_spec__descriptor);
    c->nodes = calloc((size_t)nodes, sizeof *c->nodes);
    c->n_nodes = (size_t)nodes;
    for (int32_t i = 0; i < nodes; i++) {
        char text[32];
        NodeInfo *n = c->nodes[i] = fresh(&node_info__descriptor);
        snprintf(text, sizeof text, "dgx%d", i);
        n->name = strdup(text);
        n->switches = calloc(2, sizeof *n->switches);
        n->n_switches = 2;
        snprintf(text, sizeof text, "leaf%d", i / 32);
        n->switches[0] = strdup(text);
        n->switches[1] = strdup("spine");
        n->devices = calloc(MONTH_DEVICES_PER_NODE, sizeof *n->devices);
        n->n_devices = MONTH_DEVICES_PER_NODE;
        for (size_t d = 0; d < n->n_devices; d++) {
            n->devices[d] = fresh(&device_info__descriptor);
            n->devices[d]->type = strdup("h100");
        }
    }
    struct fabric *f = NULL;
    struct error err = {0};
    ASSERT(cluster_check("month", c, &err) == 0 && fabric_new(&f, c, &err) == 0);
    cluster_spec__free_unpacked(c, NULL);
    return f;
}

static void make_job(struct month *m, struct month_job *j, int64_t submit_ms, struct sim_rng *rng)
{
    double u = sim_rng_unit(rng);
    size_t k = 0;
    while (k + 1 < sizeof sizes / sizeof sizes[0] && u >= sizes[k].part) {
        u -= sizes[k++].part;
    }
    j->num_devices = sizes[k].size;
    if (j->num_devices > m->fabric->num_devices / 2) {
        j->num_devices = m->fabric->num_devices / 2;
    }
    int32_t tensor = j->num_devices < 8 ? j->num_devices : 8;
    tensor = sim_rng_chance(rng, .5) ? tensor : 1;
    int32_t pipeline = j->num_devices >= 128 && sim_rng_chance(rng, .5) ? 4 : 1;
    j->place = (struct place_request){.data = j->num_devices / tensor / pipeline,
                                      .pipeline = pipeline,
                                      .context = 1,
                                      .tensor = tensor,
                                      .expert = 1,
                                      .type = "any"};
    /* The last asks for more than its quota. Who has a gang larger than that has a larger quota. */
    u = sim_rng_unit(rng);
    j->tenant = u < .45 ? 0 : u < .65 ? 1 : 2;
    while (j->num_devices > m->due[j->tenant] && j->tenant > 0) {
        j->tenant--;
    }
    u = sim_rng_unit(rng);
    j->priority = u < .1 ? 700 : u < .3 ? 300 : 500;
    j->submit_ms = submit_ms;
    double hours = exp(1.3 * normal(rng));
    j->work_ms = (int64_t)(hours * HOUR_MS);
    j->limit_ms = sim_rng_chance(rng, .2); /* whether; how long follows from the work */
    j->guess = .95 + .1 * sim_rng_unit(rng);
}

/* More by day than by night, fewer at weekends. */
static double rate_at(int64_t at_ms)
{
    double hour = (double)(at_ms % DAY_MS) / HOUR_MS;
    return (1 + .7 * sin((hour - 8) / 24 * 2 * 3.14159265358979)) *
           (at_ms / DAY_MS % 7 >= 5 ? .6 : 1.16);
}

/* Durations are stretched so that the work offered is that part of the cluster's time. */
static void fit_load(struct month *m, double load)
{
    double all = 0, room = (double)m->fabric->num_devices * (double)(m->days * DAY_MS);
    for (int32_t i = 0; i < m->num_jobs; i++) {
        all += (double)m->jobs[i].num_devices * (double)m->jobs[i].work_ms;
    }
    for (int pass = 0; pass < 8; pass++) { /* what is cut off at two days is put onto the others */
        double factor = load * room / all;
        all = 0;
        for (int32_t i = 0; i < m->num_jobs; i++) {
            struct month_job *j = &m->jobs[i];
            double work = (double)j->work_ms * factor;
            work = work > 48.0 * HOUR_MS ? 48.0 * HOUR_MS : work < 60000 ? 60000 : work;
            j->work_ms = (int64_t)work;
            all += (double)j->num_devices * work;
        }
    }
    for (int32_t i = 0; i < m->num_jobs; i++) {
        struct month_job *j = &m->jobs[i];
        j->limit_ms = j->limit_ms ? j->work_ms * 3 / 2 + m->start_ms : 0;
    }
}

struct month *month_new(int32_t nodes, int64_t days, int64_t jobs_a_day, double load)
{
    struct sim_rng rng = {2026};
    struct month *m = calloc(1, sizeof *m);
    ASSERT(m);
    m->fabric = make_fabric(nodes);
    m->days = days;
    m->start_ms = 60000;
    static const char *const names[] = {"large", "careful", "hungry"};
    static const int32_t parts[] = {50, 30, 20};
    for (int32_t t = 0; t < MONTH_TENANTS; t++) {
        m->due[t] = m->fabric->num_devices * parts[t] / 100;
        m->tenants[t] =
            (struct sched_tenant){.name = names[t], .quota = -1, .max = -1, .weight = parts[t]};
    }
    int32_t cap = (int32_t)(days * jobs_a_day);
    m->jobs = calloc((size_t)cap, sizeof *m->jobs);
    m->queue = calloc((size_t)cap, sizeof *m->queue);
    m->running = calloc((size_t)cap, sizeof *m->running);
    ASSERT(m->jobs && m->queue && m->running);
    double at = 0, gap = (double)DAY_MS / (double)jobs_a_day;
    while (m->num_jobs < cap) {
        at -= gap / rate_at((int64_t)at) * log(1 - sim_rng_unit(&rng));
        make_job(m, &m->jobs[m->num_jobs], (int64_t)at, &rng);
        m->num_jobs++;
    }
    fit_load(m, load);
    return m;
}

void month_rewind(struct month *m)
{
    for (int32_t i = 0; i < m->num_jobs; i++) {
        struct month_job *j = &m->jobs[i];
        device_set_free(j->set);
        device_set_free(j->claim);
        *j = (struct month_job){.place = j->place,
                                .tenant = j->tenant,
                                .priority = j->priority,
                                .num_devices = j->num_devices,
                                .submit_ms = j->submit_ms,
                                .work_ms = j->work_ms,
                                .limit_ms = j->limit_ms,
                                .guess = j->guess};
    }
    free_map_free(m->free);
    sched_free(m->sched);
    m->sched = NULL;
    m->free = free_map_new(m->fabric);
    m->now_ms = m->num_pushed = 0;
    m->num_events = 0;
    m->num_queue = m->num_running = 0;
    m->num_passes = m->num_evictions = m->num_backfills = 0;
    m->busy_s = m->lost_s = 0;
    m->next_ms = SCHED_NEVER;
    for (int32_t t = 0; t < MONTH_TENANTS; t++) {
        m->tenants[t].usage = m->owed_s[t] = 0;
        m->used[t] = 0;
    }
}

void month_free(struct month *m)
{
    month_rewind(m);
    free_map_free(m->free);
    fabric_free(m->fabric);
    free(m->heap);
    free(m->queue);
    free(m->running);
    free(m->jobs);
    free(m);
}
