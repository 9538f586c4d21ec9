/* Unary calls between client and server, over real sockets on loopback. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/rpc_fixture.h"

/* A call carries its request there and its reply back, over TCP and over the socket file; the
 * handler knows who calls. */
static void unary_call_is_answered(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    assert_string_equal(text, "token");
    rpc_channel_close(c);
    c = rpc_dial(f->unix_target, NULL);
    assert_int_equal(rpc_get_job(c, "b", WAIT_MS, text), ERR_OK);
    assert_string_equal(text, "socket");
    rpc_channel_close(c);
}

/* A handler's failure reaches the client as code and sentence. */
static void failure_keeps_code_and_text(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "missing", WAIT_MS, text), ERR_NOT_FOUND);
    assert_string_equal(text, "no job \"missing\"");
    rpc_channel_close(c);
}

/* A status that is long, or no valid UTF-8, still arrives under its own code: core would turn an
 * over-large one into RESOURCE_EXHAUSTED. */
static void status_text_is_cut_and_cleaned(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "verbose", WAIT_MS, text), ERR_FAILED_PRECONDITION);
    assert_true(strlen(text) > 900);
    assert_int_equal(rpc_get_job(c, "garbled", WAIT_MS, text), ERR_FAILED_PRECONDITION);
    assert_string_equal(text, "caf\xC3\xA9 ? 100%   end");
    rpc_channel_close(c);
}

/* A reply over the limit that every client takes fails in words. */
static void over_large_reply_fails_in_words(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "big", WAIT_MS, text), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(text, "ask for less"));
    rpc_channel_close(c);
}

/* A request over the limit is refused before any handler sees it. */
static void over_large_request_is_refused(void **state)
{
    struct fixture *f = *state;
    char out[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    char *text = malloc(CALL_MESSAGE_MAX_BYTES + 1);
    memset(text, 'x', CALL_MESSAGE_MAX_BYTES);
    text[CALL_MESSAGE_MAX_BYTES] = 0;
    assert_int_equal(rpc_get_job(c, text, WAIT_MS, out), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(f->num_messages, 0);
    free(text);
    rpc_channel_close(c);
}

static bool is_over(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    bool over = f->unanswered && call_is_over(f->unanswered);
    pthread_mutex_unlock(&f->lock);
    return over;
}

/* A deadline ends the call at the client, and the server's handler is told. */
static void deadline_ends_the_call_on_both_sides(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    /* A deadline may pass before the handler has the call; then there is nobody to be told. */
    for (int64_t ms = 200; f->num_messages == 1; ms *= 2) {
        assert_true(ms < WAIT_MS);
        assert_int_equal(rpc_get_job(c, "never", ms, text), ERR_DEADLINE_EXCEEDED);
    }
    await(is_over(f));
    await(f->num_closed == f->num_messages);
    pthread_mutex_lock(&f->lock);
    Job job = JOB__INIT;
    call_reply(f->unanswered, &job.base); /* too late: nothing happens */
    call_fail(f->unanswered, ERR_INTERNAL, "late");
    pthread_mutex_unlock(&f->lock);
    rpc_channel_close(c);
}

struct caller_thread {
    pthread_t thread;
    struct rpc_channel *channel;
    int failures;
};

static void *call_often(void *arg)
{
    struct caller_thread *t = arg;
    for (int i = 0; i < 5; i++) {
        char text[ERROR_TEXT_MAX];
        GetJobRequest q = GET_JOB_REQUEST__INIT;
        q.job = (char[]){"a"};
        ProtobufCMessage *reply;
        struct error err = {0};
        if (rpc_call(t->channel, "/tandem.v1.Jobs/Get", &q.base, &tandem__v1__job__descriptor,
                     &reply, WAIT_MS, &err)) {
            snprintf(text, sizeof text, "%s", err.text);
            t->failures++;
        } else {
            protobuf_c_message_free_unpacked(reply, NULL);
        }
    }
    return NULL;
}

/* 200 calls in flight on one channel are all answered. */
static void two_hundred_calls_at_once_are_answered(void **state)
{
    struct fixture *f = *state;
    enum { N = 200 };
    static struct caller_thread t[N];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    for (int i = 0; i < N; i++) {
        t[i] = (struct caller_thread){.channel = c};
        assert_int_equal(pthread_create(&t[i].thread, NULL, call_often, &t[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(t[i].thread, NULL);
        assert_int_equal(t[i].failures, 0);
    }
    assert_int_equal(f->num_messages, 5 * N);
    rpc_channel_close(c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rpc_setup, rpc_teardown)
    const struct CMUnitTest tests[] = {
        T(unary_call_is_answered),
        T(failure_keeps_code_and_text),
        T(status_text_is_cut_and_cleaned),
        T(over_large_reply_fails_in_words),
        T(over_large_request_is_refused),
        T(deadline_ends_the_call_on_both_sides),
        T(two_hundred_calls_at_once_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
