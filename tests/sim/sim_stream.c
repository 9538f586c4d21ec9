#include "tests/sim/sim_stream.h"

#include <stdlib.h>

#include "server/msg.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

/* How long an end may believe in a connection that is gone. */
#define HALF_OPEN_US 20000000

static bool server_hears(const struct sim_stream *st)
{
    const struct sim_server *v = st->sim->server;
    return v->up && v->generation == st->generation && st->call;
}

static void let_go(struct sim_stream *st)
{
    if (st->call) {
        struct call *c = st->call;
        st->call = NULL;
        sim_call_over(c);
        call_unref(c);
    }
}

/* ---- up ---- */

static void drop_up(struct sim *s, void *arg, int64_t n)
{
    (void)s;
    (void)n;
    msg_free(((void **)arg)[1]);
    free(arg);
}

static void arrive_up(struct sim *s, void *arg, int64_t n)
{
    struct sim_stream *st = ((void **)arg)[0];
    const ProtobufCMessage *up = ((void **)arg)[1];
    if (!st->broken && !st->over && server_hears(st)) {
        st->spoke = true;
        svc_worker_methods[0].on_message(&s->server->app, st->call, up);
    }
    drop_up(s, arg, n);
}

void sim_stream_up(struct sim_stream *st, WorkerUp *up)
{
    struct sim *s = st->sim;
    void **arg = malloc(2 * sizeof *arg);
    ASSERT(arg);
    arg[0] = st;
    arg[1] = up;
    int64_t at_us = s->now_us + sim_net_us(s);
    st->up_us = at_us > st->up_us ? at_us : st->up_us;
    sim_at(s, st->up_us, arrive_up, drop_up, arg, 0);
}

/* ---- down ---- */

static void drop_down(struct sim *s, void *arg, int64_t n)
{
    (void)s;
    (void)n;
    free(arg);
}

struct down_event {
    struct sim_stream *stream;
    struct sim_down down;
};

static void arrive_down(struct sim *s, void *arg, int64_t n)
{
    (void)n;
    struct down_event *e = arg;
    const struct sim_stream *st = e->stream;
    if (!st->broken && st->node && st->node->stream == st) {
        sim_node_hear(s, st->node, &e->down);
    }
    free(e);
}

static void send_down(struct sim_stream *st, const struct sim_down *down)
{
    struct sim *s = st->sim;
    struct down_event *e = malloc(sizeof *e);
    ASSERT(e);
    *e = (struct down_event){.stream = st, .down = *down};
    int64_t at_us = s->now_us + sim_net_us(s);
    st->down_us = at_us > st->down_us ? at_us : st->down_us;
    sim_at(s, st->down_us, arrive_down, drop_down, e, 0);
}

static void on_message(void *peer, const ProtobufCMessage *m)
{
    struct sim_down down = {0};
    sim_node_read_down((const WorkerDown *)m, &down);
    send_down(peer, &down);
}

/* ---- ends ---- */

static void tell_server(struct sim *s, void *arg, int64_t n)
{
    (void)n;
    struct sim_stream *st = arg;
    if (server_hears(st) && st->spoke && !st->told) {
        st->told = true;
        sim_trace(s->now_us, "the stream of job %lld attempt %d is closed",
                  (long long)st->who.job_id, st->who.attempt);
        svc_worker_methods[0].on_closed(&s->server->app, st->call);
    }
    let_go(st);
}

static void tell_node(struct sim *s, void *arg, int64_t n)
{
    (void)n;
    struct sim_stream *st = arg;
    if (st->node && st->node->stream == st) {
        sim_node_stream_ended(s, st->node, ERR_UNAVAILABLE, "the connection broke");
    }
}

static void on_end(void *peer, enum error_code code, const char *text)
{
    struct sim_stream *st = peer;
    struct sim *s = st->sim;
    struct sim_down down = {.kind = SIM_DOWN_END, .code = code};
    sim_trace(s->now_us, "stream of job %lld attempt %d is ended: %s", (long long)st->who.job_id,
              st->who.attempt, text);
    st->over = true;
    send_down(st, &down);
    sim_after(s, sim_net_us(s), tell_server, NULL, st, 0);
}

struct sim_stream *sim_stream_open(struct sim *s, struct sim_node *node, int64_t job,
                                   int32_t attempt)
{
    static const struct sim_peer peer = {.message = on_message, .end = on_end};
    struct sim_stream *st = calloc(1, sizeof *st);
    ASSERT(st);
    *st = (struct sim_stream){.sim = s,
                              .next = s->streams,
                              .node = node,
                              .who = {.user = "worker",
                                      .tenant = "default",
                                      .role = "worker",
                                      .peer = "unix",
                                      .method = "Worker/Attach",
                                      .job_id = job,
                                      .attempt = attempt},
                              .generation = s->server->generation};
    s->streams = st;
    st->call = sim_call_new(s, &st->who, &peer, st);
    return st;
}

void sim_stream_break(struct sim_stream *st, bool by_node)
{
    struct sim *s = st->sim;
    if (st->broken) {
        return;
    }
    st->broken = true;
    bool slow = sim_strikes(s, 0.1);
    sim_after(s, sim_rng_delay(&s->rng, 10, slow ? HALF_OPEN_US : 50000), tell_server, NULL, st, 0);
    if (!by_node) {
        slow = sim_strikes(s, 0.1);
        sim_after(s, sim_rng_delay(&s->rng, 10, slow ? HALF_OPEN_US : 50000), tell_node, NULL, st,
                  0);
    }
}

void sim_stream_server_gone(struct sim *s)
{
    for (struct sim_stream *st = s->streams; st; st = st->next) {
        if (!st->broken) {
            sim_stream_break(st, false);
        }
    }
}

void sim_stream_free_all(struct sim *s)
{
    while (s->streams) {
        struct sim_stream *st = s->streams;
        s->streams = st->next;
        let_go(st);
        free(st);
    }
}
