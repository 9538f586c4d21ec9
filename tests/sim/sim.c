#include "tests/sim/sim.h"

#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/job.h"
#include "tests/sim/sim_admin.h"
#include "tests/sim/sim_chaos.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"
#include "tests/sim/sim_stream.h"

/* From the end of the faults until all must have come to rest. */
#define REST_US ((int64_t)3 * 3600 * 1000000)
/* Of one seed; a livelock is a failure. */
#define EVENTS_MAX 2000000

static struct sim *current;

struct sim *sim_current(void)
{
    return current;
}

void sim_set_current(struct sim *s)
{
    current = s;
}

/* ---- events ---- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

void sim_at(struct sim *s, int64_t at_us, sim_fn run, sim_fn drop, void *arg, int64_t n)
{
    if (s->num_events == s->cap_events) {
        s->cap_events = s->cap_events ? 2 * s->cap_events : 256;
        s->events = realloc(s->events, s->cap_events * sizeof *s->events);
        ASSERT(s->events);
    }
    struct sim_event e = {.at_us = at_us > s->now_us ? at_us : s->now_us,
                          .order = s->order++,
                          .run = run,
                          .drop = drop,
                          .arg = arg,
                          .n = n};
    size_t i = s->num_events++;
    while (i > 0 && before(&e, &s->events[(i - 1) / 2])) {
        s->events[i] = s->events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->events[i] = e;
}

void sim_after(struct sim *s, int64_t delay_us, sim_fn run, sim_fn drop, void *arg, int64_t n)
{
    sim_at(s, s->now_us + delay_us, run, drop, arg, n);
}

static struct sim_event next_event(struct sim *s)
{
    struct sim_event first = s->events[0], e = s->events[--s->num_events];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->num_events) {
            break;
        }
        if (child + 1 < s->num_events && before(&s->events[child + 1], &s->events[child])) {
            child++;
        }
        if (!before(&s->events[child], &e)) {
            break;
        }
        s->events[i] = s->events[child];
        i = child;
    }
    s->events[i] = e;
    return first;
}

/* ---- chance ---- */

void sim_fail(struct sim *s, const char *fmt, ...)
{
    if (s->failed) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, ap);
    va_end(ap);
    s->failed = true;
    sim_trace(s->now_us, "BROKEN: %s", s->why);
}

bool sim_strikes(struct sim *s, double p)
{
    return !s->calm && sim_rng_chance(&s->rng, p);
}

int64_t sim_net_us(struct sim *s)
{
    return sim_rng_delay(&s->rng, 50, s->calm ? 3000 : 1000 * s->profile->delay_max_ms);
}

/* ---- a run ---- */

static void name_stuck_jobs(struct sim *s)
{
    char text[400] = "";
    for (int32_t i = 0; i < s->num_jobs; i++) {
        size_t len = strlen(text);
        if (!sim_client_is_over(&s->jobs[i])) {
            snprintf(text + len, sizeof text - len, " %s is %s", s->jobs[i].name,
                     s->jobs[i].state ? job_state_name(s->jobs[i].state) : "not acknowledged");
        }
    }
    struct controller *c = s->server->up ? s->server->app.controller : NULL;
    for (size_t i = 0; c && i < controller_num_jobs(c); i++) {
        const struct job *j = controller_job_at(c, i);
        sim_trace(s->now_us, "in memory: job %lld, %s, attempt %d in condition %d",
                  (long long)j->row.id, job_state_name(j->row.state), j->row.attempt.number,
                  (int)j->row.attempt.condition);
    }
    size_t num_alive = 0;
    for (size_t i = 0; i < s->num_nodes; i++) {
        num_alive += s->nodes[i]->alive || sim_node_holds(s->nodes[i]);
    }
    sim_fail(s, "hours after the last fault:%s; %zu tandem-nodes live, %zu jobs in memory", text,
             num_alive, s->server->up ? controller_num_jobs(s->server->app.controller) : (size_t)0);
}

static void loop(struct sim *s)
{
    int64_t deadline_us = 1000 * s->profile->chaos_ms + REST_US;
    for (int64_t num = 0; !s->failed; num++) {
        if (s->num_events == 0 || s->now_us > deadline_us || num > EVENTS_MAX) {
            name_stuck_jobs(s);
            return;
        }
        struct sim_event e = next_event(s);
        s->now_us = e.at_us;
        e.run(s, e.arg, e.n);
        sim_server_poke(s);
        if (s->calm && !s->failed && sim_check_is_quiet(s)) {
            sim_check_end(s);
            return;
        }
    }
}

static void end(struct sim *s)
{
    for (size_t i = 0; i < s->num_events; i++) {
        if (s->events[i].drop) {
            s->events[i].drop(s, s->events[i].arg, s->events[i].n);
        }
    }
    sim_stream_free_all(s);
    s->num_events = 0;
    sim_server_free(s);
    for (size_t i = 0; i < s->num_events; i++) {
        if (s->events[i].drop) {
            s->events[i].drop(s, s->events[i].arg, s->events[i].n);
        }
    }
    free(s->events);
    sim_node_free_all(s);
    sim_client_free(s);
    sim_admin_free(s);
    sim_cluster_free(s);
}

static void on_abort(int sig)
{
    (void)sig;
    if (current) {
        fprintf(stderr, "aborted in seed %llu of %s\n", (unsigned long long)current->seed,
                current->profile->name);
        sim_trace_dump();
    }
}

static bool run(uint64_t seed, const struct sim_profile *p, bool loud, struct sim_seen *seen,
                char *why, size_t why_size)
{
    struct sim_profile filled = sim_profile_filled(p);
    struct sim s = {.seed = seed, .profile = &filled, .rng = {seed * 0x9E3779B97F4A7C15u + 1}};
    signal(SIGABRT, on_abort);
    /* Files of some megabytes come and go with each seed: keep the memory. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    current = &s;
    sim_trace_begin(loud);
    sim_cluster_new(&s);
    sim_server_new(&s);
    sim_admin_new(&s);
    sim_client_new(&s);
    sim_chaos_new(&s);
    sim_server_boot(&s);
    loop(&s);
    snprintf(why, why_size, "%s", s.why);
    if (loud) {
        fprintf(stderr,
                "%lld steps, %lld crashes, %lld attempts, %lld ends, %lld faults, %zu jobs; %lld "
                "evictions, %lld drained, %lld over their limit, %lld claims, %lld backfills\n",
                (long long)s.seen.steps, (long long)s.seen.crashes, (long long)s.seen.attempts,
                (long long)s.seen.finished, (long long)s.seen.faults, (size_t)s.num_jobs,
                (long long)s.seen.evictions, (long long)s.seen.drained, (long long)s.seen.limited,
                (long long)s.seen.claims, (long long)s.seen.backfills);
    }
    s.seen.end_us = s.now_us;
    s.seen.events = s.order;
    s.seen.rng = s.rng.state;
    if (seen) {
        *seen = s.seen;
    }
    end(&s);
    current = NULL;
    return !s.failed;
}

bool sim_run(uint64_t seed, const struct sim_profile *p, bool loud, char *why, size_t why_size)
{
    return run(seed, p, loud, NULL, why, why_size);
}

bool sim_run_seen(uint64_t seed, const struct sim_profile *p, struct sim_seen *seen, char *why,
                  size_t why_size)
{
    return run(seed, p, false, seen, why, why_size);
}

bool sim_run_seeds(const struct sim_profile *p, uint64_t first, uint64_t num, uint64_t *failed_seed)
{
    for (uint64_t seed = first; seed < first + num; seed++) {
        char why[512];
        if (!sim_run(seed, p, false, why, sizeof why)) {
            sim_trace_dump();
            fprintf(stderr, "%s: seed %llu (%llu seeds were fine before it): %s\n", p->name,
                    (unsigned long long)seed, (unsigned long long)(seed - first), why);
            if (failed_seed) {
                *failed_seed = seed;
            }
            return false;
        }
    }
    return true;
}
