/* Server streams and bidirectional ones between client and server. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/deadline.h"
#include "tests/unit/rpc_fixture.h"

/* What the server sends arrives in order; recv's timeout leaves the stream as it was; the
 * server's end comes behind everything queued. */
static void server_stream_arrives_in_order_and_ends(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    struct rpc_stream *s = rpc_open_watch(c);
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), 1);
    assert_int_equal(rpc_recv_watch(s, 20, &err), -1);
    assert_int_equal(err.code, ERR_DEADLINE_EXCEEDED);
    struct call *w = rpc_watcher(f, 0);
    for (int64_t i = 1; i <= 100; i++) {
        StepMetrics step = STEP_METRICS__INIT;
        step.has_step = 1;
        step.step = i;
        WatchReply r = WATCH_REPLY__INIT;
        r.metrics = &step;
        assert_true(call_send(w, &r.base));
    }
    call_finish(w);
    WatchReply late = WATCH_REPLY__INIT;
    assert_false(call_send(w, &late.base));
    for (int64_t i = 1; i <= 100; i++) {
        ProtobufCMessage *m;
        assert_int_equal(
            rpc_stream_recv(s, &tandem__v1__watch_reply__descriptor, &m, WAIT_MS, &err), 1);
        assert_int_equal(((WatchReply *)m)->metrics->step, i);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), 0);
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), 0);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    rpc_channel_close(c);
}

/* A watcher that doesn't read loses messages, which are counted; the queue stays bounded and
 * others notice nothing. */
static void slow_reader_loses_messages_not_memory(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    struct rpc_stream *slow = rpc_open_watch(c);
    await(rpc_num_watchers(f) == 1);
    struct rpc_channel *c2 = rpc_dial(f->target, "user-token");
    struct rpc_stream *quick = rpc_open_watch(c2);
    assert_int_equal(rpc_recv_watch(quick, WAIT_MS, &err), 1);
    struct call *w = rpc_watcher(f, 0), *q = rpc_watcher(f, 1);
    char *text = malloc(65536);
    memset(text, 'x', 65535);
    text[65535] = 0;
    Event e = EVENT__INIT;
    e.message = text;
    WatchReply r = WATCH_REPLY__INIT;
    r.event = &e;
    struct call_packed *p = call_pack(&r.base);
    int sent = 0, lost = 0;
    while (lost < 11) { /* a buffer on the way may take one more in between */
        lost += !call_send_packed(w, p);
        assert_true(++sent < 10000);
        assert_true(call_send_packed(q, p));
        assert_int_equal(rpc_recv_watch(quick, WAIT_MS, &err), 1);
    }
    assert_int_equal(call_dropped(w), lost);
    assert_int_equal(call_dropped(q), 0);
    assert_true(call_queued(w) <= CALL_QUEUE_MAX);
    /* What was taken arrives once the reader wakes up: the hello, and all that was sent. */
    call_finish(w);
    for (int i = 0; i < sent - lost + 1; i++) {
        assert_int_equal(rpc_recv_watch(slow, WAIT_MS, &err), 1);
    }
    assert_int_equal(rpc_recv_watch(slow, WAIT_MS, &err), 0);
    call_packed_free(p);
    free(text);
    rpc_stream_close(slow);
    rpc_stream_close(quick);
    rpc_channel_close(c);
    rpc_channel_close(c2);
}

static void *cancel_soon(void *arg)
{
    clock_sleep_ms(20);
    rpc_stream_cancel(arg);
    return NULL;
}

/* Cancelling from another thread wakes a blocked reader, and the server is told. */
static void cancel_wakes_the_reader(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    struct rpc_stream *s = rpc_open_watch(c);
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), 1);
    pthread_t t;
    pthread_create(&t, NULL, cancel_soon, s);
    deadline_begin(DEADLINE_S, "a reader that wakes");
    assert_int_equal(rpc_recv_watch(s, -1, &err), -1);
    deadline_end();
    assert_int_equal(err.code, ERR_CANCELLED);
    pthread_join(t, NULL);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    assert_true(call_is_over(rpc_watcher(f, 0)));
    rpc_channel_close(c);
}

static struct rpc_stream *attach(struct rpc_channel *c)
{
    struct rpc_stream *s;
    assert_int_equal(rpc_stream_open(c, "/tandem.v1.Worker/Attach", NULL, &s, NULL), 0);
    return s;
}

static int send_seq(struct rpc_stream *s, int64_t seq, struct error *err)
{
    WorkerUp up = WORKER_UP__INIT;
    up.has_seq = 1;
    up.seq = seq;
    return rpc_stream_send(s, &up.base, err);
}

/* The seq of the next Ack, 0 at the end, -1 on error. */
static int64_t recv_ack(struct rpc_stream *s, struct error *err)
{
    ProtobufCMessage *m;
    int r = rpc_stream_recv(s, &tandem__v1__worker_down__descriptor, &m, WAIT_MS, err);
    if (r != 1) {
        return r;
    }
    WorkerDown *d = (WorkerDown *)m;
    assert_int_equal(d->attempt, 2);
    int64_t seq = d->ack->seq;
    protobuf_c_message_free_unpacked(m, NULL);
    return seq;
}

/* A bidi stream carries both ways; half-closing lets the server finish. */
static void bidi_stream_answers_each_and_half_closes(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    for (int64_t i = 1; i <= 50; i++) {
        assert_int_equal(send_seq(s, i, &err), 0);
        assert_int_equal(recv_ack(s, &err), i);
    }
    assert_int_equal(rpc_stream_half_close(s, &err), 0);
    assert_int_equal(recv_ack(s, &err), 0);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    assert_int_equal(f->num_half_closed, 1);
    rpc_channel_close(c);
}

struct sender {
    struct rpc_stream *stream;
    atomic_int_fast64_t acked;
};

/* No more of them at a time than the server's queue of replies holds: what is beyond is lost. */
static void *send_many(void *arg)
{
    struct sender *s = arg;
    int64_t n = 0;
    while (n < 2000 && send_seq(s->stream, n + 1, NULL) == 0) {
        n++;
        int64_t until_ms = clock_mono_ms() + WAIT_MS;
        while (n - atomic_load(&s->acked) > CALL_QUEUE_MAX / 2 && clock_mono_ms() < until_ms) {
            clock_sleep_ms(1);
        }
    }
    return (void *)(intptr_t)n;
}

/* One thread may send while another receives. */
static void one_thread_sends_while_another_receives(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "worker-token");
    struct sender s = {.stream = attach(c)};
    pthread_t t;
    pthread_create(&t, NULL, send_many, &s);
    for (int64_t seq = 1; seq <= 2000; seq++) {
        assert_int_equal(recv_ack(s.stream, &err), seq);
        atomic_store(&s.acked, seq);
    }
    void *sent;
    pthread_join(t, &sent);
    assert_int_equal((intptr_t)sent, 2000);
    rpc_stream_close(s.stream);
    rpc_channel_close(c);
}

/* While a call is held, the client's messages wait and no handler is called; all of them arrive
 * once it is released. */
static void held_call_reads_no_more(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    for (int64_t i = 0; i <= 50; i++) {
        assert_int_equal(send_seq(s, HOLD_AT + i, &err), 0);
    }
    assert_int_equal(recv_ack(s, &err), HOLD_AT);
    /* Behind a reply on the same connection, what was sent before is at the server. */
    assert_int_equal(rpc_call_path(c, "/tandem.v1.Jobs/Fly", &err), ERR_UNIMPLEMENTED);
    assert_true(f->num_messages <= 2);
    call_hold(rpc_watcher(f, 0), false);
    for (int64_t i = 1; i <= 50; i++) {
        assert_int_equal(recv_ack(s, &err), HOLD_AT + i);
    }
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* Once the other end has gone, sends fail and don't hang. */
static void sending_on_a_dead_stream_fails(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    assert_int_equal(send_seq(s, 1, &err), 0);
    assert_int_equal(recv_ack(s, &err), 1);
    rpc_stream_cancel(s);
    assert_int_equal(recv_ack(s, &err), -1);
    assert_int_equal(send_seq(s, 2, &err), -1);
    rpc_stream_close(s);
    await(f->num_closed == 1);
    rpc_channel_close(c);
}

/* A stream that ends before its first message is an error, and no handler hears of it. */
static void empty_bidi_stream_is_refused(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "worker-token");
    struct rpc_stream *s = attach(c);
    rpc_stream_half_close(s, &err);
    assert_int_equal(recv_ack(s, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    rpc_stream_close(s);
    rpc_channel_close(c);
    assert_int_equal(f->num_half_closed, 0);
    assert_int_equal(f->num_closed, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rpc_setup, rpc_teardown)
    const struct CMUnitTest tests[] = {
        T(server_stream_arrives_in_order_and_ends),
        T(slow_reader_loses_messages_not_memory),
        T(cancel_wakes_the_reader),
        T(bidi_stream_answers_each_and_half_closes),
        T(one_thread_sends_while_another_receives),
        T(held_call_reads_no_more),
        T(sending_on_a_dead_stream_fails),
        T(empty_bidi_stream_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
