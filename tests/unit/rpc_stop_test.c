/* The end of a server while a call is on its way to it. */
#include <stdatomic.h>

#include "server/rpc/wire.h"
#include "tests/unit/rpc_fixture.h"

/* The I/O thread that takes up the held call stands still until the queue of that call is shut
 * down: as late as it can come. */
static atomic_bool holding;
static _Atomic(grpc_completion_queue *) held_at;

void __real_server_call_new(struct call *c, bool ok);
void __wrap_server_call_new(struct call *c, bool ok);
void __wrap_server_call_new(struct call *c, bool ok)
{
    if (ok && atomic_load(&holding) && !atomic_load(&held_at)) {
        atomic_store(&held_at, c->cq);
        while (atomic_load(&holding)) {
            clock_sleep_ms(1);
        }
    }
    __real_server_call_new(c, ok);
}

void __real_grpc_completion_queue_shutdown(grpc_completion_queue *cq);
void __wrap_grpc_completion_queue_shutdown(grpc_completion_queue *cq);
void __wrap_grpc_completion_queue_shutdown(grpc_completion_queue *cq)
{
    __real_grpc_completion_queue_shutdown(cq);
    if (cq == atomic_load(&held_at)) {
        atomic_store(&holding, false);
    }
}

static void *call_once(void *arg)
{
    struct fixture *f = arg;
    char text[ERROR_TEXT_MAX];
    struct rpc_channel *c = rpc_dial(f->target, "user-token");
    enum error_code code = rpc_get_job(c, "a", WAIT_MS, text);
    rpc_channel_close(c);
    return code == ERR_UNAVAILABLE ? NULL : "the call was answered";
}

/* A call that core has handed over, but nobody has taken up, is no call of a server that has
 * stopped: core doesn't wait for it, and takes it for a fault of ours to begin anything on a queue
 * that is shut down. */
static void call_that_nobody_took_up_outlives_the_server(void **state)
{
    struct fixture *f = *state;
    atomic_store(&holding, true);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, call_once, f), 0);
    await(atomic_load(&held_at));
    server_free(f->server);
    f->server = NULL;
    assert_false(atomic_load(&holding));
    void *fault;
    pthread_join(t, &fault);
    assert_null(fault);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(call_that_nobody_took_up_outlives_the_server, rpc_setup,
                                        rpc_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
