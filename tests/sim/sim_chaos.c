#include "tests/sim/sim_chaos.h"

#include "server/msg.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"
#include "tests/sim/sim_stream.h"

#define TICK_US 200000
#define SETTLE_US 1000000

/* A living tandem-node, or NULL. */
static struct sim_node *pick_node(struct sim *s)
{
    struct sim_node *found = NULL;
    int64_t num = 0;
    for (size_t i = 0; i < s->num_nodes; i++) {
        if (s->nodes[i]->alive && sim_rng_between(&s->rng, 0, num++) == 0) {
            found = s->nodes[i];
        }
    }
    return found;
}

/* ---- disk ---- */

static bool spoil(struct sim *s, int64_t *until_us, double chance, int64_t most_us,
                  const char *what)
{
    if (s->now_us >= *until_us && sim_strikes(s, chance)) {
        sim_trace(s->now_us, "the disk %s", what);
        *until_us = s->now_us + sim_rng_between(&s->rng, 100000, most_us);
        s->seen.faults++;
    }
    return !s->calm && s->now_us < *until_us;
}

static void spoil_disk(struct sim *s)
{
    const struct sim_profile *p = s->profile;
    struct sim_disk_faults *f = sim_disk_faults(s->disk);
    f->full = spoil(s, &s->disk_full_us, p->full, 8000000, "is full");
    bool bad = spoil(s, &s->disk_bad_us, p->io_errors, 5000000, "has errors");
    f->write_error = bad ? 0.05 : 0;
    f->sync_error = bad ? 0.3 : 0;
    f->read_error = bad ? 0.2 : 0;
    bool slow = p->sync_us_max > 0 && spoil(s, &s->disk_slow_us, 0.1, 5000000, "is slow");
    f->sync_us_max = slow ? p->sync_us_max : 300;
    s->disk_well_us = f->full || bad || slow ? s->now_us : s->disk_well_us;
}

/* ---- controller ---- */

static void disturb_server(struct sim *s)
{
    const struct sim_profile *p = s->profile;
    if (!s->server->up) {
        return;
    }
    if (sim_strikes(s, p->crash)) {
        sim_server_restart(s, true);
    } else if (sim_strikes(s, p->reboot)) {
        sim_server_reboot(s);
    } else if (sim_strikes(s, p->stop)) {
        sim_server_restart(s, false);
    } else if (sim_strikes(s, p->crash_in_write)) {
        sim_disk_freeze_at(s->disk, sim_rng_between(&s->rng, 1, 12));
    }
    if (sim_strikes(s, p->clock_jump)) {
        int64_t jump_us = sim_rng_between(&s->rng, -7200, 7200) * 1000000;
        sim_trace(s->now_us, "the wall clock jumps by %lld s", (long long)(jump_us / 1000000));
        s->server->wall_0_us += jump_us;
        s->server->jumps_us += jump_us < 0 ? -jump_us : jump_us;
    }
}

/* ---- gangs and network ---- */

static void disturb_nodes(struct sim *s)
{
    const struct sim_profile *p = s->profile;
    struct sim_node *n = pick_node(s);
    if (!n) {
        return;
    }
    int64_t had = s->seen.faults++;
    if (sim_strikes(s, p->rank_crash)) {
        sim_node_fail_rank(s, n, true, "rank 0 was killed by signal 9");
    } else if (sim_strikes(s, p->rank_fatal)) {
        sim_node_fail_rank(s, n, false, "the loss is not a number");
    } else if (sim_strikes(s, p->rank_hang)) {
        sim_node_hang(s, n);
    } else if (sim_strikes(s, p->node_kill)) {
        n->truth->num_failures++;
        sim_node_kill(s, n->pid, false);
    } else if (n->stream && sim_strikes(s, p->break_stream)) {
        sim_trace(s->now_us, "the stream of tandem-node %lld breaks", (long long)n->pid);
        sim_stream_break(n->stream, false);
    } else {
        s->seen.faults = had;
    }
}

/* The words of an attempt that has long been replaced. */
static void speak_late(struct sim *s)
{
    struct sim_node *n =
        s->num_nodes ? s->nodes[sim_rng_between(&s->rng, 0, (int64_t)s->num_nodes - 1)] : NULL;
    if (!n || !s->server->up || n->alive || n->truth->attempt <= n->attempt) {
        return;
    }
    sim_trace(s->now_us, "late words of job %lld attempt %d", (long long)n->job, n->attempt);
    s->seen.faults++;
    struct sim_stream *st = sim_stream_open(s, NULL, n->job, n->attempt);
    WorkerUp *hello = msg_new(&worker_up__descriptor), *end = msg_new(&worker_up__descriptor);
    hello->body_case = WORKER_UP__BODY_HELLO;
    hello->hello = msg_new(&hello__descriptor);
    MSG_SET(hello->hello, fresh, 0);
    MSG_SET(hello, job_id, n->job);
    MSG_SET(hello, attempt, n->attempt);
    MSG_SET(end, job_id, n->job);
    MSG_SET(end, attempt, n->attempt);
    MSG_SET(end, seq, n->acked + 1);
    end->body_case = WORKER_UP__BODY_ATTEMPT_END;
    end->attempt_end = msg_new(&attempt_end__descriptor);
    MSG_SET(end->attempt_end, finished, 1);
    sim_stream_up(st, hello);
    sim_stream_up(st, end);
}

/* ---- time ---- */

static void settle(struct sim *s, void *arg, int64_t n)
{
    (void)arg;
    (void)n;
    sim_client_settle(s);
    sim_admin_settle(s);
    sim_check_time(s);
    sim_after(s, SETTLE_US, settle, NULL, NULL, 0);
}

static void calm_down(struct sim *s)
{
    sim_trace(s->now_us, "no more faults");
    s->calm = true;
    sim_disk_freeze_at(s->disk, 0);
    spoil_disk(s);
    if (s->cluster->file != s->cluster->all || s->cluster->missing) {
        sim_server_restart(s, false); /* the file is whole again */
    }
    settle(s, NULL, 0);
}

static void tick(struct sim *s, void *arg, int64_t n)
{
    (void)arg;
    (void)n;
    if (s->now_us >= 1000 * s->profile->chaos_ms) {
        calm_down(s);
        return;
    }
    spoil_disk(s);
    disturb_server(s);
    disturb_nodes(s);
    if (sim_strikes(s, s->profile->late)) {
        speak_late(s);
    }
    sim_client_act(s);
    sim_admin_act(s);
    sim_check_time(s);
    /* A long time has no more ticks than a minute. */
    int64_t long_us = s->profile->chaos_ms * 1000 / 300;
    int64_t every_us = long_us > TICK_US ? long_us : TICK_US;
    sim_after(s, sim_rng_between(&s->rng, 1, 2 * every_us), tick, NULL, NULL, 0);
}

void sim_chaos_new(struct sim *s)
{
    sim_after(s, 0, tick, NULL, NULL, 0);
}
