/* What a pass of the scheduler costs: a queue of 10,000 jobs on clusters of 1,024 to 65,536
 * devices, half of them held; from nothing, and after little has changed. Processor time: the
 * median of several passes and, of full ones, the least, which says most on a busy machine.
 * DEVICES=16384 measures one size alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "plan/cluster.h"
#include "server/sched/sched.h"

enum { JOBS = 10000, TENANTS = 4, PASSES = 9, HOUR_MS = 3600000 };

static void *must(void *memory)
{
    ASSERT(memory);
    return memory;
}

struct world {
    struct fabric *f;
    struct sched *s;
    struct sched_options options;
    struct sched_tenant tenants[TENANTS];
    struct sched_job *jobs;
    size_t num_jobs;
    struct sched_run *runs;
    size_t num_runs;
    int64_t now_ms, next_id;
    char (*names)[16]; /* of nodes that jobs are pinned to */
    const char **pins;
    uint64_t draws;
};

static uint64_t draw(struct world *w, uint64_t n)
{
    return rng_u64(1, 2, w->draws++) % n;
}

static struct fabric *make_fabric(int num_devices)
{
    char text[512];
    int h100 = num_devices * 3 / 4 / 8, b200 = num_devices / 8 - h100;
    snprintf(text, sizeof text,
             "groups:\n"
             "  - {name: h, count: %d, devices: 8, type: h100, nodes_per_leaf: 32, "
             "leaves_per_spine: 8}\n"
             "  - {name: b, count: %d, devices: 8, type: b200, nodes_per_leaf: 32, "
             "leaves_per_spine: 8}\n",
             h100, b200);
    ClusterSpec *spec;
    struct fabric *f;
    struct error err;
    if (cluster_parse("bench", text, strlen(text), &spec, &err) != 0 ||
        fabric_new(&f, spec, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    cluster_spec__free_unpacked(spec, NULL);
    return f;
}

/* Of 1 to a sixteenth of the cluster; tensor groups of 1 to 8; some with a time limit, some pinned
 * to a node, some of one type. */
static void add_job(struct world *w)
{
    static const int32_t tensors[] = {1, 1, 2, 4, 8, 8};
    static const char *const types[] = {"any", "any", "h100", "b200"};
    struct sched_job *j = &w->jobs[w->num_jobs];
    int32_t tensor = tensors[draw(w, 6)];
    int32_t groups = 1 << draw(w, 4);
    if (draw(w, 20) == 0) {
        groups = w->f->num_devices / 16 / tensor;
    }
    *j = (struct sched_job){.id = w->next_id++,
                            .tenant = (int32_t)draw(w, TENANTS),
                            .priority = (int32_t)draw(w, 10),
                            .num_devices = groups * tensor,
                            .place = {.data = groups,
                                      .pipeline = 1,
                                      .context = 1,
                                      .tensor = tensor,
                                      .expert = 1,
                                      .type = types[draw(w, 4)],
                                      .mem_bytes = (int64_t)draw(w, 80) << 30},
                            .waits_since_ms = w->now_ms - (int64_t)draw(w, 48 * HOUR_MS),
                            .ready = draw(w, 20) != 0};
    if (groups > 1 && groups <= 8 && draw(w, 4) == 0) {
        j->place.pipeline = groups;
        j->place.data = 1;
    }
    j->limit_ms = draw(w, 3) == 0 ? (int64_t)draw(w, 8 * HOUR_MS) : 0;
    if (j->num_devices <= 8 && draw(w, 10) == 0) {
        j->place.nodes = &w->pins[draw(w, (uint64_t)w->f->num_nodes)];
        j->place.num_nodes = 1;
        j->place.type = "any";
    }
    w->num_jobs++;
}

static void add_run(struct world *w, int32_t tenant, int32_t priority, struct device_set *set)
{
    w->runs[w->num_runs++] = (struct sched_run){
        .id = w->next_id++,
        .tenant = tenant,
        .priority = priority,
        .devices = set,
        .started_ms = w->now_ms - (int64_t)draw(w, 24 * HOUR_MS),
        .end_ms = draw(w, 2) ? w->now_ms + (int64_t)draw(w, 24 * HOUR_MS) : SCHED_NEVER,
        .hard_end_ms = SCHED_NEVER,
        .lost_ms = (int64_t)draw(w, HOUR_MS),
        .can_stop = draw(w, 10) != 0};
}

/* Half of the devices, by runs of 8 to 64 that lie scattered, some not of whole nodes. */
static void fill_half(struct world *w)
{
    int32_t n = w->f->num_devices;
    for (int32_t d = 0; d < n;) {
        int32_t devices[64], num = 8 << draw(w, 4);
        num = num > n - d ? n - d : num;
        int32_t taken = draw(w, 4) == 0 ? num - 3 : num;
        for (int32_t i = 0; i < taken; i++) {
            devices[i] = d + i;
        }
        add_run(w, (int32_t)draw(w, TENANTS), (int32_t)draw(w, 10), device_set_new(devices, taken));
        d += num + (8 << draw(w, 4));
    }
}

/* All devices, a run each: as many victims as there can be. */
static void fill_singly(struct world *w)
{
    for (int32_t d = 0; d < w->f->num_devices; d++) {
        add_run(w, (int32_t)draw(w, TENANTS), (int32_t)draw(w, 10), device_set_new(&d, 1));
    }
}

static void make_world(struct world *w, int num_devices, size_t num_jobs,
                       void (*fill)(struct world *))
{
    *w = (struct world){.f = make_fabric(num_devices), .now_ms = (int64_t)1000 * HOUR_MS};
    w->options = (struct sched_options){.preemption = true,
                                        .backfill = true,
                                        .max_evictions = 3,
                                        .min_run_ms = 300000,
                                        .grace_ms = 120000,
                                        .aging_per_h = 0.1,
                                        .aging_max = 5,
                                        .fair_share = 5};
    for (int i = 0; i < TENANTS; i++) {
        w->tenants[i] = (struct sched_tenant){
            .name = "t",
            .quota = i < 2 ? num_devices / 4 : -1,
            .max = i == 1 ? num_devices / 2 : -1,
            .weight = i + 1,
            .usage = 1e6 * (i + 1) * (i + 2),
        };
    }
    w->jobs = must(calloc(num_jobs + 64, sizeof *w->jobs));
    w->runs = must(calloc((size_t)num_devices + 64, sizeof *w->runs));
    w->names = must(calloc((size_t)w->f->num_nodes, sizeof *w->names));
    w->pins = must(calloc((size_t)w->f->num_nodes, sizeof *w->pins));
    for (int32_t i = 0; i < w->f->num_nodes; i++) {
        snprintf(w->names[i], sizeof w->names[i], "%s", w->f->nodes[i].name);
        w->pins[i] = w->names[i];
    }
    w->next_id = 1;
    fill(w);
    while (w->num_jobs < num_jobs) {
        add_job(w);
    }
    ASSERT(sched_new(&w->s, w->f, NULL) == 0);
}

static void free_world(struct world *w)
{
    for (size_t i = 0; i < w->num_runs; i++) {
        device_set_free((struct device_set *)w->runs[i].devices);
    }
    for (size_t i = 0; i < w->num_jobs; i++) {
        device_set_free((struct device_set *)w->jobs[i].claim);
    }
    free(w->jobs);
    free(w->runs);
    free(w->names);
    free(w->pins);
    sched_free(w->s);
    fabric_free(w->f);
}

struct took {
    double ms;
    size_t num, starts, claims;
};

/* Of this thread: others on the machine are not our cost. */
static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct took pass(struct world *w, const struct sched_decision **decisions)
{
    struct sched_view v = {.fabric = w->f,
                           .options = &w->options,
                           .tenants = w->tenants,
                           .num_tenants = TENANTS,
                           .jobs = w->jobs,
                           .num_jobs = w->num_jobs,
                           .runs = w->runs,
                           .num_runs = w->num_runs,
                           .now_ms = w->now_ms};
    const struct sched_decision *d;
    struct took t = {0};
    int64_t start_ns = cpu_ns();
    t.num = sched_pass(w->s, &v, &d);
    t.ms = (double)(cpu_ns() - start_ns) / 1e6;
    for (size_t i = 0; i < t.num; i++) {
        t.starts += d[i].kind == SCHED_START;
        t.claims += d[i].kind == SCHED_CLAIM;
    }
    if (decisions) {
        *decisions = d;
    }
    return t;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double full_ms(struct world *w, struct took *t, double *least_ms)
{
    double ms[PASSES];
    for (int i = 0; i < PASSES; i++) {
        sched_reset(w->s);
        *t = pass(w, NULL);
        ms[i] = t->ms;
    }
    qsort(ms, PASSES, sizeof *ms, compare);
    *least_ms = ms[0];
    return ms[PASSES / 2];
}

/* Starts become runs, victims are gone at once. */
static void carry_out(struct world *w, const struct sched_decision *d, size_t num)
{
    bool *gone = must(calloc(w->num_runs + w->num_jobs + 1, sizeof *gone)),
         *left = gone + w->num_jobs;
    for (size_t i = 0; i < num; i++) {
        struct sched_job *j = &w->jobs[d[i].job];
        if (d[i].kind == SCHED_START) {
            add_run(w, j->tenant, j->priority, device_set_copy(d[i].set));
            w->runs[w->num_runs - 1].started_ms = w->now_ms;
            gone[d[i].job] = true;
        } else if (d[i].kind == SCHED_STOP) {
            left[d[i].run] = true;
        } else {
            device_set_free((struct device_set *)j->claim);
            j->claim = d[i].set ? device_set_copy(d[i].set) : NULL;
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < w->num_jobs; i++) {
        if (gone[i]) {
            device_set_free((struct device_set *)w->jobs[i].claim);
        } else {
            w->jobs[n++] = w->jobs[i];
        }
    }
    size_t had = w->num_runs;
    w->num_runs = 0;
    for (size_t i = 0; i < had; i++) {
        if (left[i]) {
            device_set_free((struct device_set *)w->runs[i].devices);
        } else {
            w->runs[w->num_runs++] = w->runs[i];
        }
    }
    w->num_jobs = n;
    free(gone);
}

/* Until a pass decides nothing. */
static int settle(struct world *w)
{
    for (int passes = 1;; passes++) {
        const struct sched_decision *d;
        struct took t = pass(w, &d);
        if (t.num == 0 || passes == 1000) {
            return passes;
        }
        w->runs = must(realloc(w->runs, (w->num_runs + t.num + 64) * sizeof *w->runs));
        struct sched_decision *kept = must(malloc(t.num * sizeof *kept));
        memcpy(kept, d, t.num * sizeof *kept);
        carry_out(w, kept, t.num);
        free(kept);
        w->now_ms += 1;
    }
}

/* A job comes, progress is reported, the clock goes on: and a pass. */
static double small_ms(struct world *w, bool reset)
{
    double ms[PASSES];
    for (int i = 0; i < PASSES; i++) {
        add_job(w);
        w->now_ms += 1000;
        for (size_t k = 0; k < w->num_runs; k++) {
            w->runs[k].lost_ms += 1000;
        }
        if (reset) {
            sched_reset(w->s);
        }
        ms[i] = pass(w, NULL).ms;
        w->num_jobs--;
    }
    qsort(ms, PASSES, sizeof *ms, compare);
    return ms[PASSES / 2];
}

static double measure(const char *says, int num_devices, double before,
                      void (*fill)(struct world *))
{
    struct world w;
    struct took t;
    make_world(&w, num_devices, JOBS, fill);
    double least, ms = full_ms(&w, &t, &least);
    size_t runs = w.num_runs;
    settle(&w);
    double next = small_ms(&w, false), again = small_ms(&w, true);
    printf("%-12s %8d %6zu %6d %9.2f %9.2f %6.2f %8zu %7zu %9.2f %11.2f\n", says, num_devices, runs,
           JOBS, ms, least, before > 0 ? least / before : 1, t.starts, t.claims, next, again);
    free_world(&w);
    return least;
}

int main(void)
{
    const char *only = getenv("DEVICES");
    int first = only ? atoi(only) : 1024, last = only ? first : 65536;
    printf("%-12s %8s %6s %6s %9s %9s %6s %8s %7s %9s %11s\n", "held", "devices", "runs", "jobs",
           "full ms", "least ms", "ratio", "starts", "claims", "next ms", "next, reset");
    double before = 0;
    for (int n = first; n <= last; n *= 2) {
        before = measure("half", n, before, fill_half);
    }
    for (int n = first; n <= last && n <= 16384; n *= 4) {
        before = measure("all, singly", n, n == first ? 0 : before, fill_singly);
    }
    return 0;
}
