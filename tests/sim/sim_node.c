#include "tests/sim/sim_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "server/msg.h"
#include "tests/sim/sim_node_private.h"

#define FIRST_PID 1000
#define FIRST_LEASE_US ((int64_t)30 * 60 * 1000000)

struct sim_node *sim_node_new(struct sim *s, int64_t job, int32_t attempt)
{
    struct sim_node *n = calloc(1, sizeof *n);
    ASSERT(n);
    if (s->num_nodes == s->cap_nodes) {
        s->cap_nodes = s->cap_nodes ? 2 * s->cap_nodes : 64;
        s->nodes = realloc(s->nodes, s->cap_nodes * sizeof(struct sim_node *));
        ASSERT(s->nodes);
    }
    double drift = s->profile->clock_drift;
    *n = (struct sim_node){.pid = FIRST_PID + (int64_t)s->num_nodes,
                           .job = job,
                           .attempt = attempt,
                           .truth = sim_client_job(s, job),
                           .alive = true,
                           .retryable = true,
                           .stop_at = -1,
                           .rate = 1 - drift + 2 * drift * sim_rng_unit(&s->rng)};
    n->lease_until_us = sim_node_clock_us(s, n) + FIRST_LEASE_US;
    s->nodes[s->num_nodes++] = n;
    s->seen.attempts++;
    sim_trace(s->now_us, "job %lld attempt %d: tandem-node %lld starts", (long long)job, attempt,
              (long long)n->pid);
    return n;
}

void sim_node_free_all(struct sim *s)
{
    for (size_t i = 0; i < s->num_nodes; i++) {
        struct sim_node *n = s->nodes[i];
        for (size_t k = 0; k < n->num_reports; k++) {
            msg_free(n->reports[k]);
        }
        free(n->reports);
        free(n);
    }
    free(s->nodes);
}

struct sim_node *sim_node_find(struct sim *s, int64_t pid)
{
    int64_t i = pid - FIRST_PID;
    return i >= 0 && i < (int64_t)s->num_nodes ? s->nodes[i] : NULL;
}

bool sim_node_holds(const struct sim_node *n)
{
    return n->gang == GANG_RUNS || n->gang == GANG_HANGS || n->gang == GANG_STOPS;
}

/* ---- ticket ---- */

void sim_node_ticket(struct sim *s, int64_t pid, const LaunchTicket *ticket)
{
    struct sim_node *n = sim_node_find(s, pid);
    if (!n->alive) {
        return;
    }
    if (ticket->job_id != n->job || ticket->attempt != n->attempt) {
        sim_fail(s, "tandem-node %lld got the ticket of another attempt", (long long)pid);
    }
    n->has_ticket = true;
    for (int i = 0; i < HASH_BYTES; i++) {
        unsigned byte;
        sscanf(ticket->token + 2 * i, "%2x", &byte);
        n->token[i] = (uint8_t)byte;
    }
    sim_node_attach_after(s, n, sim_rng_delay(&s->rng, 1000, 500000));
}

static void leave_without_ticket(struct sim *s, void *arg, int64_t x)
{
    (void)x;
    struct sim_node *n = arg;
    if (n->alive && s->now_us >= n->stuck_until_us) {
        sim_trace(s->now_us, "tandem-node %lld finds no ticket and leaves", (long long)n->pid);
        n->alive = false;
    }
}

void sim_node_end_of_ticket(struct sim *s, int64_t pid)
{
    struct sim_node *n = sim_node_find(s, pid);
    if (n && n->alive && !n->has_ticket) {
        sim_after(s, sim_rng_delay(&s->rng, 100, 100000), leave_without_ticket, NULL, n, 0);
    }
}

/* ---- reports ---- */

void sim_node_report(struct sim_node *n, WorkerUp *up)
{
    MSG_SET(up, job_id, n->job);
    MSG_SET(up, attempt, n->attempt);
    MSG_SET(up, seq, ++n->last_seq);
    if (n->num_reports == n->cap_reports) {
        n->cap_reports = n->cap_reports ? 2 * n->cap_reports : 16;
        n->reports = realloc(n->reports, n->cap_reports * sizeof *n->reports);
        ASSERT(n->reports);
    }
    n->reports[n->num_reports++] = up;
    if (!n->lost_from && sim_disk_faults(sim_current()->disk)->full) {
        n->lost_from = n->last_seq;
    }
    if (n->stream && n->greeted) {
        sim_stream_up(n->stream, (WorkerUp *)text_clone(&up->base));
    }
}

void sim_node_maybe_leave(struct sim *s, struct sim_node *n)
{
    if (n->alive && n->ended && !sim_node_holds(n) && (n->abandoned || n->num_reports == 0)) {
        sim_trace(s->now_us, "tandem-node %lld leaves", (long long)n->pid);
        n->alive = false;
        if (n->stream) {
            sim_stream_break(n->stream, true);
            n->stream = NULL;
        }
    }
}

/* ---- death ---- */

static void die(struct sim *s, void *arg, int64_t all)
{
    struct sim_node *n = arg;
    if (s->now_us < n->stuck_until_us) {
        return; /* tried again when that is over */
    }
    if (n->alive) {
        sim_trace(s->now_us, "tandem-node %lld is killed", (long long)n->pid);
        n->alive = false;
        if (n->stream) {
            sim_stream_break(n->stream, true);
            n->stream = NULL;
        }
        if (sim_node_holds(n)) {
            sim_node_stop_gang(s, n, 2000000);
        }
    }
    if (all && sim_node_holds(n)) {
        sim_node_stop_gang(s, n, 1000);
    }
}

void sim_node_kill(struct sim *s, int64_t pid, bool all)
{
    struct sim_node *n = sim_node_find(s, pid);
    if (!n || (!n->alive && !sim_node_holds(n))) {
        return;
    }
    if (all && !n->killed && sim_strikes(s, s->profile->stuck)) {
        n->stuck_until_us = s->now_us + sim_rng_between(&s->rng, 500000, 60000000);
        sim_trace(s->now_us, "tandem-node %lld can't be killed for a while", (long long)n->pid);
        sim_at(s, n->stuck_until_us + 1, die, NULL, n, 1);
    }
    n->killed = n->killed || all;
    sim_after(s, sim_rng_delay(&s->rng, 10, 20000), die, NULL, n, all);
}

void sim_node_reboot(struct sim *s)
{
    for (size_t i = 0; i < s->num_nodes; i++) {
        struct sim_node *n = s->nodes[i];
        if (!n->alive && !sim_node_holds(n)) {
            continue;
        }
        if (n->alive && n->num_reports && sim_strikes(s, 0.5)) {
            int64_t lost = sim_rng_between(&s->rng, n->acked + 1, n->last_seq);
            n->lost_from = n->lost_from && n->lost_from < lost ? n->lost_from : lost;
        }
        if (n->stream) {
            sim_stream_break(n->stream, true);
            n->stream = NULL;
        }
        n->truth->num_failures++;
        n->alive = false;
        n->stuck_until_us = 0;
        n->gang = n->gang == GANG_NONE ? GANG_NONE : GANG_GONE;
        n->gang_id++;
    }
}

void sim_node_count_failure(struct sim *s, int64_t job)
{
    sim_client_job(s, job)->num_failures++;
}
