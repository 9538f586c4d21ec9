/* Streams, events, memory and the thread pool of host devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/host/pool.h"
#include "kernels/host/stream.h"
#include "kernels/kernels.h"
#include "tests/deadline.h"

/* Of each test, queues and pools included. */
#define TEST_S 120

struct fixture {
    struct device *dev;
    struct stream *compute;
    struct stream *queue;
    struct stream *other;
};

static int open_device(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct error err = {0};
    deadline_begin(TEST_S, "the end of the test that runs: a queue, or the caller, waits");
    assert_int_equal(device_open_ref(&f->dev, &err), 0);
    assert_int_equal(f->dev->ops->stream_new(f->dev, STREAM_INLINE, &f->compute, &err), 0);
    assert_int_equal(f->dev->ops->stream_new(f->dev, STREAM_QUEUE, &f->queue, &err), 0);
    assert_int_equal(f->dev->ops->stream_new(f->dev, STREAM_QUEUE, &f->other, &err), 0);
    *state = f;
    return 0;
}

static int close_device(void **state)
{
    struct fixture *f = *state;
    f->dev->ops->stream_free(f->dev, f->compute);
    f->dev->ops->stream_free(f->dev, f->queue);
    f->dev->ops->stream_free(f->dev, f->other);
    f->dev->ops->close(f->dev);
    free(f);
    deadline_end();
    return 0;
}

/* A place that several threads agree to meet at. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int value;
};

static struct gate gate_init(void)
{
    return (struct gate){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
}

static void gate_set(struct gate *g, int value)
{
    pthread_mutex_lock(&g->lock);
    g->value = value;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void gate_wait(struct gate *g, int value)
{
    pthread_mutex_lock(&g->lock);
    while (g->value < value) {
        pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

struct append_args {
    int *log;
    int *num;
    int value;
};

static int append(void *args, struct error *err)
{
    (void)err;
    struct append_args *a = args;
    a->log[(*a->num)++] = a->value;
    return 0;
}

static int break_down(void *args, struct error *err)
{
    return error_set(err, ERR_DATA_LOSS, "broken part %d", *(int *)args);
}

struct gate_args {
    struct gate *open;
    struct gate *reached;
};

static int pass_gate(void *args, struct error *err)
{
    (void)err;
    struct gate_args *a = args;
    gate_set(a->reached, 1);
    gate_wait(a->open, 1);
    return 0;
}

static void call(struct fixture *f, struct stream *s, device_call_fn fn, const void *args,
                 size_t bytes)
{
    struct error err = {0};
    assert_int_equal(f->dev->ops->host_call(f->dev, s, fn, args, bytes, &err), 0);
}

/* More than the ring holds, so that the caller is held back as well. */
static void a_queue_runs_its_work_in_order(void **state)
{
    struct fixture *f = *state;
    enum { N = 3000 };
    static int log[N];
    int num = 0;
    for (int i = 0; i < N; i++) {
        struct append_args a = {log, &num, i};
        call(f, f->queue, append, &a, sizeof a);
    }
    struct error err = {0};
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    assert_int_equal(num, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(log[i], i);
    }
}

/* Communication must run beside computation: the caller goes on while the queue is held up. */
static void a_queue_does_not_hold_up_the_caller(void **state)
{
    struct fixture *f = *state;
    struct gate open = gate_init();
    struct gate reached = gate_init();
    struct gate_args a = {&open, &reached};
    call(f, f->queue, pass_gate, &a, sizeof a);
    gate_wait(&reached, 1);
    double *x = f->dev->ops->alloc(f->dev, 8 * sizeof *x, MEM_DEVICE);
    x[0] = 3;
    struct error err = {0};
    assert_int_equal(kernels_ref()->scale(f->dev, f->compute, DTYPE_F64, x, 2, 8, &err), 0);
    assert_true(x[0] == 6);
    gate_set(&open, 1);
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    f->dev->ops->free(f->dev, x);
}

/* Work behind a wait sees what was before the record, on another queue and on the caller. */
static void events_order_streams(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct event *e;
    assert_int_equal(f->dev->ops->event_new(f->dev, &e, &err), 0);
    int log[4];
    int num = 0;
    struct gate open = gate_init();
    struct gate reached = gate_init();
    struct gate_args held = {&open, &reached};
    for (int round = 0; round < 50; round++) {
        num = 0;
        open.value = reached.value = 0;
        call(f, f->queue, pass_gate, &held, sizeof held);
        call(f, f->queue, append, &(struct append_args){log, &num, 1}, sizeof(struct append_args));
        assert_int_equal(f->dev->ops->event_record(f->dev, e, f->queue, &err), 0);
        assert_int_equal(f->dev->ops->stream_wait(f->dev, f->other, e, &err), 0);
        call(f, f->other, append, &(struct append_args){log, &num, 2}, sizeof(struct append_args));
        gate_wait(&reached, 1);
        gate_set(&open, 1);
        assert_int_equal(f->dev->ops->event_record(f->dev, e, f->other, &err), 0);
        assert_int_equal(f->dev->ops->stream_wait(f->dev, f->compute, e, &err), 0);
        assert_int_equal(num, 2);
        assert_int_equal(log[0], 1);
        assert_int_equal(log[1], 2);
        assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    }
    f->dev->ops->event_free(f->dev, e);
}

/* An event of the inline stream fires at once, and one that was never recorded holds nobody. */
static void an_event_of_computation_lets_the_queue_go(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct event *e;
    assert_int_equal(f->dev->ops->event_new(f->dev, &e, &err), 0);
    assert_int_equal(f->dev->ops->stream_wait(f->dev, f->compute, e, &err), 0);
    assert_int_equal(f->dev->ops->event_record(f->dev, e, f->compute, &err), 0);
    assert_int_equal(f->dev->ops->stream_wait(f->dev, f->queue, e, &err), 0);
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    f->dev->ops->event_free(f->dev, e);
}

static int write_late(void *args, struct error *err)
{
    (void)err;
    struct timespec moment = {.tv_nsec = 2000000};
    nanosleep(&moment, NULL);
    **(int **)args += 1;
    return 0;
}

/* What the event stands behind is done; what follows it in the stream need not be. */
static void the_caller_can_wait_for_an_event(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct event *e;
    struct gate open = gate_init(), reached = gate_init();
    int value = 0, *place = &value, number = 3;
    assert_int_equal(f->dev->ops->event_new(f->dev, &e, &err), 0);
    assert_int_equal(f->dev->ops->event_sync(f->dev, e, &err), 0);
    for (int round = 1; round <= 20; round++) {
        open.value = reached.value = 0;
        call(f, f->queue, write_late, &place, sizeof place);
        assert_int_equal(f->dev->ops->event_record(f->dev, e, f->queue, &err), 0);
        call(f, f->queue, pass_gate, &(struct gate_args){&open, &reached},
             sizeof(struct gate_args));
        assert_int_equal(f->dev->ops->event_sync(f->dev, e, &err), 0);
        assert_int_equal(value, round);
        gate_set(&open, 1);
        assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    }
    call(f, f->queue, break_down, &number, sizeof number);
    assert_int_equal(f->dev->ops->event_record(f->dev, e, f->queue, &err), 0);
    assert_int_equal(f->dev->ops->event_sync(f->dev, e, &err), -1);
    assert_string_equal(err.text, "host call: broken part 3");
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), -1);
    f->dev->ops->event_free(f->dev, e);
}

/* After a failure nothing more runs on broken data; the first error is the one that counts, it
 * reaches those who wait, and after the sync the stream works again. */
static void an_error_sticks_until_the_sync(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct event *e;
    assert_int_equal(f->dev->ops->event_new(f->dev, &e, &err), 0);
    int log[4];
    int num = 0;
    int first = 1;
    int second = 2;
    struct append_args a = {log, &num, 7};
    call(f, f->queue, break_down, &first, sizeof first);
    call(f, f->queue, append, &a, sizeof a);
    call(f, f->queue, break_down, &second, sizeof second);
    assert_int_equal(f->dev->ops->event_record(f->dev, e, f->queue, &err), 0);
    assert_int_equal(f->dev->ops->stream_wait(f->dev, f->other, e, &err), 0);
    call(f, f->other, append, &a, sizeof a);

    assert_int_equal(f->dev->ops->stream_wait(f->dev, f->compute, e, &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    assert_string_equal(err.text, "host call: broken part 1");
    memset(&err, 0, sizeof err);
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), -1);
    assert_string_equal(err.text, "host call: broken part 1");
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->other, &err), -1);
    assert_string_equal(err.text, "host call: broken part 1");
    assert_int_equal(num, 0);

    call(f, f->queue, append, &a, sizeof a);
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    assert_int_equal(num, 1);
    f->dev->ops->event_free(f->dev, e);
}

static void an_inline_error_comes_from_the_call(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    int part = 3;
    assert_int_equal(
        f->dev->ops->host_call(f->dev, f->compute, break_down, &part, sizeof part, &err), -1);
    assert_string_equal(err.text, "host call: broken part 3");
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->compute, &err), 0);
}

/* A type that a backend lacks is refused by the operation's name. */
static void an_unknown_type_is_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    uint16_t x[4] = {0};
    assert_int_equal(kernels_ref()->scale(f->dev, f->compute, DTYPE_I32, x, 2, 4, &err), -1);
    assert_int_equal(err.code, ERR_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "scale"));
    assert_non_null(strstr(err.text, "ref"));
}

static void note_pool(struct pool *pool, const void *args)
{
    **(struct pool * *const *)args = pool;
}

/* A sum of gradients that held the device's threads would leave a matrix product without. */
static void a_queue_leaves_the_threads_to_computation(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct pool *pool;
    assert_int_equal(pool_new(&pool, 2, &err), 0);
    struct pool *seen = NULL;
    struct pool **at = &seen;
    struct host_work work = {.loop = note_pool, .pool = pool, .args = &at, .bytes = sizeof at};
    assert_int_equal(host_stream_submit(f->compute, &work, &err), 0);
    assert_ptr_equal(seen, pool);
    assert_int_equal(host_stream_submit(f->queue, &work, &err), 0);
    assert_int_equal(host_stream_sync(f->queue, &err), 0);
    assert_null(seen);
    pool_free(pool);
}

/* The failure of one step reaches computation through the event, and only once: the next record of
 * the event, after the sync that reported it, is a good one. */
static void a_failed_queue_tells_computation_at_its_event(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct event *e;
    int part = 4;
    assert_int_equal(f->dev->ops->event_new(f->dev, &e, &err), 0);
    for (int round = 0; round < 50; round++) {
        memset(&err, 0, sizeof err);
        call(f, f->queue, break_down, &part, sizeof part);
        assert_int_equal(f->dev->ops->event_record(f->dev, e, f->queue, &err), 0);
        assert_int_equal(f->dev->ops->stream_wait(f->dev, f->compute, e, &err), -1);
        assert_string_equal(err.text, "host call: broken part 4");
        assert_int_equal(f->dev->ops->stream_wait(f->dev, f->compute, e, NULL), -1);
        assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), -1);
        assert_int_equal(f->dev->ops->event_record(f->dev, e, f->queue, &err), 0);
        assert_int_equal(f->dev->ops->stream_wait(f->dev, f->compute, e, &err), 0);
    }
    f->dev->ops->event_free(f->dev, e);
}

/* Freeing a stream finishes its work: what a step has enqueued is never dropped. */
static void a_freed_queue_has_done_its_work(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    struct stream *s;
    assert_int_equal(f->dev->ops->stream_new(f->dev, STREAM_QUEUE, &s, &err), 0);
    int log[100];
    int num = 0;
    for (int i = 0; i < 100; i++) {
        struct append_args a = {log, &num, i};
        call(f, s, append, &a, sizeof a);
    }
    f->dev->ops->stream_free(f->dev, s);
    assert_int_equal(num, 100);
}

static void memory_is_zeroed_and_aligned_and_bounded(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 1, 63, 4096, (2u << 20) - 1, 2u << 20, (5u << 20) + 3};
    enum { N = sizeof sizes / sizeof *sizes };
    char *mem[N];
    for (int i = 0; i < N; i++) {
        mem[i] = f->dev->ops->alloc(f->dev, sizes[i], i % 2 ? MEM_HOST : MEM_DEVICE);
        assert_non_null(mem[i]);
        assert_int_equal((uintptr_t)mem[i] % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(mem[i][j], 0);
        }
        memset(mem[i], 0x5A, sizes[i]);
    }
    for (int i = 0; i < N; i += 2) {
        f->dev->ops->free(f->dev, mem[i]);
    }
    f->dev->ops->free(f->dev, NULL);
    assert_null(f->dev->ops->alloc(f->dev, (size_t)1 << 50, MEM_DEVICE));
    assert_null(f->dev->ops->alloc(f->dev, SIZE_MAX, MEM_DEVICE));
}

/* The estimate of a plan is held against this: what was there at once, not in all. */
static void the_peak_is_what_was_allocated_at_once(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->dev->ops->mem_peak(f->dev), 0);
    void *small = f->dev->ops->alloc(f->dev, 1000, MEM_DEVICE);
    void *large = f->dev->ops->alloc(f->dev, 5u << 20, MEM_HOST);
    assert_int_equal(f->dev->ops->mem_peak(f->dev), (5 << 20) + 1000);
    f->dev->ops->free(f->dev, large);
    void *other = f->dev->ops->alloc(f->dev, 4u << 20, MEM_DEVICE);
    assert_int_equal(f->dev->ops->mem_peak(f->dev), (5 << 20) + 1000);
    void *more = f->dev->ops->alloc(f->dev, 2u << 20, MEM_DEVICE);
    assert_int_equal(f->dev->ops->mem_peak(f->dev), (6 << 20) + 1000);
    assert_null(f->dev->ops->alloc(f->dev, (size_t)1 << 50, MEM_DEVICE));
    assert_int_equal(f->dev->ops->mem_peak(f->dev), (6 << 20) + 1000);
    f->dev->ops->free(f->dev, small);
    f->dev->ops->free(f->dev, other);
    f->dev->ops->free(f->dev, more);
}

static void copies_and_zeroes_reach_every_byte(void **state)
{
    struct fixture *f = *state;
    struct error err = {0};
    size_t n = (3u << 20) + 17;
    unsigned char *a = f->dev->ops->alloc(f->dev, n, MEM_DEVICE);
    unsigned char *b = f->dev->ops->alloc(f->dev, n, MEM_HOST);
    for (size_t i = 0; i < n; i++) {
        a[i] = (unsigned char)(i * 31 + 1);
    }
    assert_int_equal(f->dev->ops->copy(f->dev, f->queue, b, a, n, COPY_TO_HOST, &err), 0);
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    assert_memory_equal(a, b, n);
    assert_int_equal(f->dev->ops->zero(f->dev, f->queue, b, n, &err), 0);
    assert_int_equal(f->dev->ops->stream_sync(f->dev, f->queue, &err), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(b[i], 0);
    }
}

struct count_args {
    atomic_int *hits;
    atomic_int *holders; /* by thread */
};

static void count_task(void *arg, int64_t task, int thread)
{
    struct count_args *a = arg;
    ASSERT(atomic_fetch_add(&a->holders[thread], 1) == 0);
    atomic_fetch_add(&a->hits[task], 1);
    atomic_fetch_sub(&a->holders[thread], 1);
}

/* Each task once, jobs of all sizes back to back, and a thread number is held by one task. */
static void a_pool_runs_every_task_once(void **state)
{
    (void)state;
    enum { MAX = 97 };
    for (int num_threads = 1; num_threads <= 5; num_threads++) {
        struct pool *p;
        struct error err = {0};
        assert_int_equal(pool_new(&p, num_threads, &err), 0);
        assert_int_equal(pool_num_threads(p), num_threads);
        atomic_int holders[5] = {0};
        for (int64_t n = 0; n < MAX; n++) {
            atomic_int hits[MAX] = {0};
            struct count_args a = {hits, holders};
            pool_run(p, n, count_task, &a);
            for (int64_t i = 0; i < MAX; i++) {
                assert_int_equal(hits[i], i < n ? 1 : 0);
            }
        }
        pool_free(p);
    }
    pool_free(NULL);
}

struct rival {
    struct pool *pool;
    atomic_int hits[64];
};

static void hit_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    atomic_fetch_add(&((struct rival *)arg)->hits[task], 1);
}

static void *rival_main(void *arg)
{
    struct rival *r = arg;
    for (int i = 0; i < 500; i++) {
        pool_run(r->pool, 64, hit_task, r);
    }
    return NULL;
}

/* The queue's work and the caller's share one pool: neither may wait for the other's tasks. */
static void two_threads_may_use_one_pool(void **state)
{
    (void)state;
    struct error err = {0};
    struct rival a = {0};
    struct rival b = {0};
    assert_int_equal(pool_new(&a.pool, 3, &err), 0);
    b.pool = a.pool;
    pthread_t thread;
    deadline_begin(TEST_S, "the end of 500 rounds of two threads in one pool");
    assert_int_equal(pthread_create(&thread, NULL, rival_main, &b), 0);
    rival_main(&a);
    pthread_join(thread, NULL);
    deadline_end();
    for (int i = 0; i < 64; i++) {
        assert_int_equal(a.hits[i], 500);
        assert_int_equal(b.hits[i], 500);
    }
    pool_free(a.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_queue_runs_its_work_in_order, open_device, close_device),
        cmocka_unit_test_setup_teardown(a_queue_does_not_hold_up_the_caller, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(events_order_streams, open_device, close_device),
        cmocka_unit_test_setup_teardown(an_event_of_computation_lets_the_queue_go, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(the_caller_can_wait_for_an_event, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(an_error_sticks_until_the_sync, open_device, close_device),
        cmocka_unit_test_setup_teardown(an_inline_error_comes_from_the_call, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(an_unknown_type_is_refused_by_name, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(a_queue_leaves_the_threads_to_computation, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(a_failed_queue_tells_computation_at_its_event, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(the_peak_is_what_was_allocated_at_once, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(a_freed_queue_has_done_its_work, open_device, close_device),
        cmocka_unit_test_setup_teardown(memory_is_zeroed_and_aligned_and_bounded, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(copies_and_zeroes_reach_every_byte, open_device,
                                        close_device),
        cmocka_unit_test(a_pool_runs_every_task_once),
        cmocka_unit_test(two_threads_may_use_one_pool),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
