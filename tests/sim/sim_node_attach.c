/* The stream of a sim_node: opened again and again, reports sent again, commands heard, the lease
 * counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "server/msg.h"
#include "tests/sim/sim_node_private.h"
#include "tests/sim/sim_server.h"

#define BACKOFF_FIRST_US 50000
#define BACKOFF_MOST_US 2000000

int64_t sim_node_clock_us(const struct sim *s, const struct sim_node *n)
{
    return n->pid * 1000000 + (int64_t)((double)s->now_us * n->rate);
}

static void lease_watch(struct sim *s, void *arg, int64_t x)
{
    (void)x;
    struct sim_node *n = arg;
    if (!n->alive || n->abandoned) {
        return;
    }
    int64_t left_us = n->lease_until_us - sim_node_clock_us(s, n);
    if (left_us <= 0) {
        sim_node_abandon(s, n, "the lease is over");
    } else {
        sim_after(s, left_us + 1000, lease_watch, NULL, n, 0);
    }
}

static void again(struct sim *s, struct sim_node *n)
{
    int64_t us = (int64_t)((0.5 + 0.5 * sim_rng_unit(&s->rng)) * (double)n->backoff_us);
    n->backoff_us = 2 * n->backoff_us < BACKOFF_MOST_US ? 2 * n->backoff_us : BACKOFF_MOST_US;
    sim_node_attach_after(s, n, us);
}

static void say_hello(struct sim_node *n)
{
    WorkerUp *up = msg_new(&worker_up__descriptor);
    MSG_SET(up, job_id, n->job);
    MSG_SET(up, attempt, n->attempt);
    up->body_case = WORKER_UP__BODY_HELLO;
    up->hello = msg_new(&hello__descriptor);
    MSG_SET(up->hello, acked_seq, n->acked);
    MSG_SET(up->hello, fresh, !n->is_started);
    MSG_SET(up->hello, pid, (int32_t)n->pid);
    MSG_SET(up->hello, start_time, n->pid);
    msg_text(&up->hello->boot_id, "boot");
    sim_stream_up(n->stream, up);
}

static void attach(struct sim *s, void *arg, int64_t first)
{
    struct sim_node *n = arg;
    if (first) {
        n->backoff_us = BACKOFF_FIRST_US;
        lease_watch(s, n, 0);
    }
    if (!n->alive || n->abandoned || n->stream) {
        return;
    }
    if (!s->server->up) {
        again(s, n);
        return;
    }
    if (!sim_server_token(s, n->token)) {
        sim_node_abandon(s, n, "the controller doesn't know its token");
        return;
    }
    n->stream = sim_stream_open(s, n, n->job, n->attempt);
    n->greeted = true;
    n->heard_us = 0;
    say_hello(n);
    for (size_t i = 0; i < n->num_reports; i++) {
        sim_stream_up(n->stream, (WorkerUp *)text_clone(&n->reports[i]->base));
    }
}

void sim_node_attach_after(struct sim *s, struct sim_node *n, int64_t delay_us)
{
    sim_after(s, delay_us, attach, NULL, n, n->backoff_us == 0);
}

static bool is_refusal(enum error_code code)
{
    return code == ERR_FAILED_PRECONDITION || code == ERR_NOT_FOUND ||
           code == ERR_UNAUTHENTICATED || code == ERR_PERMISSION_DENIED ||
           code == ERR_INVALID_ARGUMENT;
}

void sim_node_stream_ended(struct sim *s, struct sim_node *n, enum error_code code,
                           const char *text)
{
    n->stream = NULL;
    if (!n->alive) {
        return;
    }
    if (is_refusal(code)) {
        sim_node_abandon(s, n, text);
        return;
    }
    n->backoff_us = BACKOFF_FIRST_US;
    again(s, n);
}

void sim_node_abandon(struct sim *s, struct sim_node *n, const char *why)
{
    if (n->abandoned || !n->alive) {
        return;
    }
    sim_trace(s->now_us, "tandem-node %lld (job %lld attempt %d) gives up: %s", (long long)n->pid,
              (long long)n->job, n->attempt, why);
    n->abandoned = true;
    if (sim_node_holds(n)) {
        sim_node_stop_gang(s, n, 1000000);
    } else {
        n->ended = true;
        sim_node_maybe_leave(s, n);
    }
}

/* ---- down ---- */

void sim_node_read_down(const WorkerDown *m, struct sim_down *out)
{
    switch (m->body_case) {
    case WORKER_DOWN__BODY_START:
        out->kind = SIM_DOWN_START;
        out->number = m->start->resume_step;
        out->total_steps = m->start->plan->total_steps;
        for (size_t i = 0; i < m->start->plan->n_placement; i++) {
            const RankPlacement *p = m->start->plan->placement[i];
            out->devices |= sim_cluster_named(sim_current(), p->node, p->device);
        }
        if (m->start->resume_dir) {
            const char *dir = strstr(m->start->resume_dir, "ckpt/");
            snprintf(out->resume_dir, sizeof out->resume_dir, "%s", dir ? dir : "?");
        }
        break;
    case WORKER_DOWN__BODY_ACK:
        out->kind = SIM_DOWN_ACK;
        out->number = m->ack->seq;
        break;
    case WORKER_DOWN__BODY_STOP_AT_STEP:
        out->kind = SIM_DOWN_STOP;
        out->number = m->stop_at_step->step;
        break;
    case WORKER_DOWN__BODY_CANCEL:
        out->kind = SIM_DOWN_CANCEL;
        out->number = m->cancel->grace_ms;
        break;
    case WORKER_DOWN__BODY_LEASE:
        out->kind = SIM_DOWN_LEASE;
        out->number = m->lease->ttl_ms;
        break;
    default:
        break;
    }
}

static void hear_ack(struct sim *s, struct sim_node *n, int64_t seq)
{
    if (seq > n->last_seq) {
        sim_fail(s, "job %lld attempt %d: seq %lld is acknowledged, %lld was the last",
                 (long long)n->job, n->attempt, (long long)seq, (long long)n->last_seq);
        return;
    }
    size_t num = seq > n->acked ? (size_t)(seq - n->acked) : 0;
    for (size_t i = 0; i < num; i++) {
        msg_free(n->reports[i]);
    }
    memmove(n->reports, n->reports + num, (n->num_reports - num) * sizeof *n->reports);
    n->num_reports -= num;
    n->acked += (int64_t)num;
    n->lost_from = n->num_reports ? n->lost_from : 0;
    for (int32_t i = 0; i < n->truth->num_checkpoints; i++) {
        struct sim_checkpoint *k = &n->truth->checkpoints[i];
        k->is_told = k->is_told || (k->attempt == n->attempt && k->seq <= n->acked);
    }
    if (n->finished && n->ended && n->num_reports == 0) {
        n->truth->result_acked = true;
    }
    sim_node_maybe_leave(s, n);
}

static void hear_cancel(struct sim *s, struct sim_node *n, int64_t grace_ms)
{
    n->cancelled = true;
    if (sim_node_holds(n)) {
        sim_node_stop_gang(s, n, 1000 * grace_ms);
    } else if (!n->ended) {
        snprintf(n->message, sizeof n->message, "cancelled");
        sim_node_end(s, n);
    }
}

static void hear_stop(struct sim *s, struct sim_node *n, int64_t step)
{
    if (n->stop_at < 0) {
        n->stubborn = sim_strikes(s, s->profile->stubborn);
        sim_trace(s->now_us, "job %lld attempt %d is told to stop%s", (long long)n->job, n->attempt,
                  n->stubborn ? ", and doesn't" : "");
        if (sim_strikes(s, s->profile->dies_stopping)) {
            sim_node_fail_rank(s, n, true, "rank 1 died while it saved");
        }
    }
    n->stop_at = step;
}

void sim_node_hear(struct sim *s, struct sim_node *n, const struct sim_down *down)
{
    if (!n->alive) {
        return;
    }
    n->heard_us = n->heard_us ? n->heard_us : s->now_us;
    switch (down->kind) {
    case SIM_DOWN_START:
        n->is_started = true;
        if (n->gang == GANG_NONE && !n->ended && !n->abandoned) {
            sim_node_start_gang(s, n, down);
        }
        break;
    case SIM_DOWN_ACK:
        hear_ack(s, n, down->number);
        break;
    case SIM_DOWN_STOP:
        hear_stop(s, n, down->number);
        break;
    case SIM_DOWN_CANCEL:
        sim_trace(s->now_us, "tandem-node %lld is told to cancel", (long long)n->pid);
        hear_cancel(s, n, down->number);
        break;
    case SIM_DOWN_LEASE:
        n->lease_until_us = sim_node_clock_us(s, n) + 1000 * down->number;
        break;
    case SIM_DOWN_END:
        n->stream->broken = true;
        sim_node_stream_ended(s, n, down->code, "the controller refuses it");
        break;
    case SIM_DOWN_NONE:
        break;
    }
}
