/* Who may call what, at the gRPC server: tokens, and rights that are lost while a stream is open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/rpc_fixture.h"

/* Nobody without the right token gets as far as a handler; a user's token opens no worker's
 * method, a worker's no user's. */
static void wrong_token_is_refused(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX];
    const char *const bad[] = {NULL, "", "user-tokem", "user-token2", "worker-token"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rpc_channel *c = rpc_dial(f->target, bad[i]);
        assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_UNAUTHENTICATED);
        assert_string_equal(text, "unknown token");
        rpc_channel_close(c);
    }
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    struct rpc_stream *s;
    struct error err;
    ProtobufCMessage *m;
    rpc_stream_open(c, "/tandem.v1.Worker/Attach", NULL, &s, NULL);
    assert_int_equal(rpc_stream_recv(s, &tandem__v1__worker_down__descriptor, &m, WAIT_MS, &err),
                     -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    rpc_stream_close(s);
    rpc_channel_close(c);
    assert_int_equal(f->num_messages, 0);
    assert_int_equal(f->num_closed, 0);
}

/* A socket file that isn't among the trusted ones lets nobody in without a token. */
static void other_socket_file_needs_a_token(void **state)
{
    struct fixture *f = *state;
    char text[ERROR_TEXT_MAX], shared[160];
    snprintf(shared, sizeof shared, "%s-shared", f->unix_target);
    struct rpc_channel *c = rpc_dial(shared, NULL);
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_UNAUTHENTICATED);
    rpc_channel_close(c);
    c = rpc_dial(shared, "user-token");
    assert_int_equal(rpc_get_job(c, "a", WAIT_MS, text), ERR_OK);
    assert_string_equal(text, "token");
    rpc_channel_close(c);
}

/* Who loses a right loses its open streams, with the reason; others keep theirs. */
static void lost_right_ends_open_streams(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "user-token"),
                       *other = rpc_dial(f->unix_target, NULL);
    struct rpc_stream *s = rpc_open_watch(c), *kept = rpc_open_watch(other);
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), 1);
    assert_int_equal(rpc_recv_watch(kept, WAIT_MS, &err), 1);
    assert_int_equal(server_recheck(f->server), 0);
    f->token_revoked = true;
    assert_int_equal(server_recheck(f->server), 1);
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    assert_string_equal(err.text, "the token was revoked");
    await(f->num_closed == 1);
    await(server_recheck(f->server) == 0); /* the call itself goes a moment later */
    WatchReply hello = WATCH_REPLY__INIT;
    await(rpc_num_watchers(f) == 2);
    for (int i = 0; i < 2; i++) {
        call_send(rpc_watcher(f, i), &hello.base);
    }
    assert_int_equal(rpc_recv_watch(kept, WAIT_MS, &err), 1);
    rpc_stream_close(s);
    rpc_stream_close(kept);
    rpc_channel_close(c);
    rpc_channel_close(other);
}

/* A right that is lost between the look at the table and the opening of the stream is lost. */
static void right_lost_while_a_stream_opens_is_noticed(void **state)
{
    struct fixture *f = *state;
    struct error err;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    f->revoke_while_asked = true;
    struct rpc_stream *s = rpc_open_watch(c);
    assert_int_equal(rpc_recv_watch(s, WAIT_MS, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    assert_int_equal(rpc_num_watchers(f), 0);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* A reader that takes nothing can't keep its stream by that. */
static void lost_right_ends_a_stream_that_is_stuck(void **state)
{
    struct fixture *f = *state;
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    struct rpc_stream *s = rpc_open_watch(c);
    await(rpc_num_watchers(f) == 1);
    char *text = calloc(1, 1 << 20);
    memset(text, 'x', (1 << 20) - 1);
    Job job = JOB__INIT;
    job.message = text;
    WatchReply reply = WATCH_REPLY__INIT;
    reply.job = &job;
    while (call_send(rpc_watcher(f, 0), &reply.base)) {
    }
    f->token_revoked = true;
    await((server_recheck(f->server), f->num_closed == 1));
    free(text);
    rpc_stream_close(s);
    rpc_channel_close(c);
}

/* A method that nobody has said a word about who may call it isn't served. */
static void method_without_a_right_is_refused(void **state)
{
    (void)state;
    const struct method forgotten[] = {{"/tandem.v1.Jobs/Get", METHOD_UNARY, METHOD_NOBODY,
                                        &tandem__v1__get_job_request__descriptor,
                                        rpc_test_methods[0].on_message, NULL, NULL},
                                       {0}};
    const char *addresses[] = {"127.0.0.1:0", NULL};
    const struct method *tables[] = {forgotten, NULL};
    struct server_options o = {
        .listen = addresses, .tables = tables, .authenticate = rpc_authenticate};
    struct server *s;
    struct error err;
    assert_int_equal(server_new(&s, &o, &err), -1);
    assert_non_null(strstr(err.text, "Jobs/Get"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rpc_setup, rpc_teardown)
    const struct CMUnitTest tests[] = {
        T(wrong_token_is_refused),
        T(other_socket_file_needs_a_token),
        T(lost_right_ends_open_streams),
        T(right_lost_while_a_stream_opens_is_noticed),
        T(lost_right_ends_a_stream_that_is_stuck),
        T(method_without_a_right_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
