/* The CUDA backend's device (kernels/device.h) on the simulator, in every schedule of streams. */
#include "tests/cusim/side.h"

#include <pthread.h>

#include "kernels/cuda/device.h"
#include "tests/cusim/right.h"

static struct device *dev;
static struct error err;

static int open_device(void **state)
{
    (void)state;
    GOOD(cuda_device_open(0, &dev, &err));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    dev->ops->close(dev);
    cusim_schedule(CUSIM_FORWARD, CUSIM_EAGER, 1);
    return 0;
}

static struct stream *stream_of(enum stream_kind kind)
{
    struct stream *s;
    GOOD(dev->ops->stream_new(dev, kind, &s, &err));
    return s;
}

/* What a test moves around. */
struct words {
    struct stream *s;
    int32_t *device, *host; /* 64 */
};

static struct words words_new(void)
{
    struct words w = {stream_of(STREAM_INLINE),
                      dev->ops->alloc(dev, 64 * sizeof(int32_t), MEM_DEVICE),
                      dev->ops->alloc(dev, 64 * sizeof(int32_t), MEM_HOST)};
    assert_true(w.device && w.host);
    return w;
}

static void words_free(struct words *w)
{
    dev->ops->stream_free(dev, w->s);
    dev->ops->free(dev, w->device);
    dev->ops->free(dev, w->host);
}

#define WORDS_BYTES (64 * sizeof(int32_t))

static void fetch(struct words *w, struct stream *s)
{
    GOOD(dev->ops->copy(dev, s, w->host, w->device, WORDS_BYTES, COPY_TO_HOST, &err));
}

static void memory_is_zeroed_and_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        struct words w = words_new();
        assert_int_equal(w.host[63], 0);
        w.host[63] = 1;
        fetch(&w, w.s);
        GOOD(dev->ops->stream_sync(dev, w.s, &err));
        assert_int_equal(w.host[63], 0);
        w.host[5] = 7;
        GOOD(dev->ops->copy(dev, w.s, w.device, w.host, WORDS_BYTES, COPY_TO_DEVICE, &err));
        GOOD(dev->ops->copy(dev, w.s, w.device + 8, w.device + 5, 4, COPY_ON_DEVICE, &err));
        GOOD(dev->ops->zero(dev, w.s, w.device + 5, 4, &err));
        GOOD(dev->ops->copy(dev, w.s, NULL, NULL, 0, COPY_ON_DEVICE, &err));
        fetch(&w, w.s);
        GOOD(dev->ops->stream_sync(dev, w.s, &err));
        assert_int_equal(w.host[5], 0);
        assert_int_equal(w.host[8], 7);
        words_free(&w);
    }
}

/* The peak is what callers asked of device memory; pinned memory and our own workspaces are not. */
static void memory_peak_is_what_was_asked_for(void **state)
{
    (void)state;
    int64_t before = dev->ops->mem_peak(dev);
    void *a = dev->ops->alloc(dev, 1000, MEM_DEVICE);
    void *b = dev->ops->alloc(dev, 24, MEM_DEVICE);
    void *none = dev->ops->alloc(dev, 0, MEM_DEVICE);
    void *host = dev->ops->alloc(dev, 5000, MEM_HOST);
    struct stream *s = stream_of(STREAM_INLINE);
    assert_non_null(none);
    dev->ops->free(dev, a);
    dev->ops->free(dev, NULL);
    void *c = dev->ops->alloc(dev, 512, MEM_DEVICE);
    assert_int_equal(dev->ops->mem_peak(dev), before + 1024);
    assert_null(dev->ops->alloc(dev, (size_t)1 << 50, MEM_DEVICE));
    assert_int_equal(dev->ops->mem_peak(dev), before + 1024);
    dev->ops->stream_free(dev, s);
    dev->ops->free(dev, b);
    dev->ops->free(dev, c);
    dev->ops->free(dev, none);
    dev->ops->free(dev, host);
}

static void closing_frees_what_was_left(void **state)
{
    (void)state;
    size_t before = cusim_counted().bytes_now;
    struct device *other;
    GOOD(cuda_device_open(0, &other, &err));
    assert_non_null(other->ops->alloc(other, 4096, MEM_DEVICE));
    assert_non_null(other->ops->alloc(other, 4096, MEM_HOST));
    other->ops->close(other);
    assert_true(cusim_counted().bytes_now == before);
}

static void streams_wait_for_events(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        struct words w = words_new();
        struct stream *queue = stream_of(STREAM_QUEUE);
        struct event *e;
        GOOD(dev->ops->event_new(dev, &e, &err));
        GOOD(dev->ops->stream_wait(dev, queue, e, &err)); /* never recorded */
        GOOD(dev->ops->event_sync(dev, e, &err));
        for (int round = 1; round <= 3; round++) {
            w.host[0] = round;
            GOOD(dev->ops->copy(dev, w.s, w.device, w.host, WORDS_BYTES, COPY_TO_DEVICE, &err));
            GOOD(dev->ops->event_record(dev, e, w.s, &err));
            GOOD(dev->ops->event_sync(dev, e, &err));
            w.host[0] = -1;
            GOOD(dev->ops->stream_wait(dev, queue, e, &err));
            fetch(&w, queue);
            GOOD(dev->ops->stream_sync(dev, queue, &err));
            assert_int_equal(w.host[0], round);
        }
        dev->ops->event_free(dev, e);
        dev->ops->stream_free(dev, queue);
        words_free(&w);
    }
}

/* Communication is short and others wait for it. */
static void queues_come_before_compute(void **state)
{
    (void)state;
    struct stream *compute = stream_of(STREAM_INLINE), *queue = stream_of(STREAM_QUEUE);
    int of_compute, of_queue;
    MUST(cudaStreamGetPriority(cuda_stream_of(compute), &of_compute));
    MUST(cudaStreamGetPriority(cuda_stream_of(queue), &of_queue));
    assert_true(of_queue < of_compute);
    dev->ops->stream_free(dev, compute);
    dev->ops->stream_free(dev, queue);
    dev->ops->stream_free(dev, NULL);
    dev->ops->event_free(dev, NULL);
}

/* A stream's failure comes out of its sync once; until then everybody on the device hears of it. */
static void failures_are_heard_by_all_until_their_stream_is_asked(void **state)
{
    (void)state;
    struct stream *s = stream_of(STREAM_INLINE), *queue = stream_of(STREAM_QUEUE);
    struct event *e;
    struct error told = {0};
    const struct error why = {ERR_UNAVAILABLE, "rank 3 did not come"};
    const struct error later = {ERR_UNAVAILABLE, "rank 4 did not come"};
    GOOD(dev->ops->event_new(dev, &e, &err));
    GOOD(dev->ops->event_record(dev, e, s, &err));
    cuda_stream_fail(dev, queue, &why);
    cuda_stream_fail(dev, queue, &later);
    assert_int_equal(dev->ops->event_sync(dev, e, &told), -1);
    assert_string_equal(told.text, why.text);
    assert_int_equal(dev->ops->stream_sync(dev, s, NULL), -1);
    assert_int_equal(dev->ops->stream_sync(dev, queue, &told), -1);
    assert_int_equal(told.code, ERR_UNAVAILABLE);
    assert_string_equal(told.text, why.text);
    GOOD(dev->ops->stream_sync(dev, queue, &err));
    GOOD(dev->ops->stream_sync(dev, s, &err));
    GOOD(dev->ops->event_sync(dev, e, &err));
    cuda_stream_fail(dev, queue, &why);
    dev->ops->stream_free(dev, queue);
    GOOD(dev->ops->stream_sync(dev, s, &err));
    /* A communicator outlives the streams of its calls, and may fail then. */
    cuda_stream_fail(dev, queue, &why);
    GOOD(dev->ops->stream_sync(dev, s, &err));
    dev->ops->event_free(dev, e);
    dev->ops->stream_free(dev, s);
}

static void *sync_elsewhere(void *event)
{
    return dev->ops->event_sync(dev, event, NULL) == 0 ? event : NULL;
}

/* Another thread may wait for an event: the one that writes checkpoints does. */
static void events_are_waited_for_by_any_thread(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        struct words w = words_new();
        struct event *e;
        pthread_t thread;
        void *result;
        GOOD(dev->ops->event_new(dev, &e, &err));
        GOOD(dev->ops->zero(dev, w.s, w.device, WORDS_BYTES, &err));
        fetch(&w, w.s);
        GOOD(dev->ops->event_record(dev, e, w.s, &err));
        assert_int_equal(pthread_create(&thread, NULL, sync_elsewhere, e), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, e);
        assert_int_equal(w.host[0], 0);
        dev->ops->event_free(dev, e);
        words_free(&w);
    }
}

/* Captured work runs when it is launched, as often as it is launched, and not before. */
static void captured_work_is_launched_often(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        struct words w = words_new();
        struct graph *g;
        char why[200];
        GOOD(dev->ops->capture_begin(dev, w.s, &err));
        MUST(right_histogram(cuda_stream_of(w.s), w.device, (unsigned *)w.device + 32, 32, 1));
        fetch(&w, w.s);
        GOOD(dev->ops->capture_end(dev, w.s, &g, why, sizeof why, &err));
        assert_non_null(g);
        GOOD(dev->ops->stream_sync(dev, w.s, &err));
        assert_int_equal(w.host[0], 0);
        for (int launch = 1; launch <= 3; launch++) {
            GOOD(dev->ops->graph_launch(dev, w.s, g, &err));
            GOOD(dev->ops->stream_sync(dev, w.s, &err));
            assert_int_equal(w.host[0], 32 * launch);
        }
        dev->ops->graph_free(dev, g);
        dev->ops->graph_free(dev, NULL);
        words_free(&w);
    }
}

/* What can't be captured is no error: it is said why, and the stream is as before. */
static void what_cannot_be_captured_says_why(void **state)
{
    (void)state;
    struct words w = words_new();
    struct graph *g = (struct graph *)&w;
    struct stream *queue = stream_of(STREAM_QUEUE);
    struct event *e;
    char why[200] = "";
    GOOD(dev->ops->event_new(dev, &e, &err));
    GOOD(dev->ops->capture_begin(dev, w.s, &err));
    GOOD(dev->ops->event_record(dev, e, w.s, &err));
    GOOD(dev->ops->stream_wait(dev, queue, e, &err));
    GOOD(dev->ops->zero(dev, queue, w.device, 4, &err)); /* and never comes back */
    assert_int_equal(dev->ops->stream_sync(dev, w.s, &err), -1);
    assert_non_null(strstr(err.text, "cudaErrorStreamCaptureUnsupported"));
    GOOD(dev->ops->capture_end(dev, w.s, &g, why, sizeof why, &err));
    assert_null(g);
    assert_non_null(strstr(why, "can't be captured"));
    assert_non_null(strstr(why, "Unjoined"));
    fetch(&w, w.s);
    GOOD(dev->ops->stream_sync(dev, w.s, &err));
    dev->ops->event_free(dev, e);
    dev->ops->stream_free(dev, queue);
    words_free(&w);
}

static void devices_that_are_not_there_are_refused(void **state)
{
    (void)state;
    struct device *none;
    int32_t num = 0;
    setenv("CUSIM_DEVICES", "2", 1);
    GOOD(cuda_device_count(&num, &err));
    assert_int_equal(num, 2);
    assert_int_equal(cuda_device_open(2, &none, &err), -1);
    assert_string_equal(err.text, "device 2: the process sees 2");
    assert_int_equal(cuda_device_open(-1, &none, &err), -1);
    GOOD(cuda_device_open(1, &none, &err));
    assert_int_equal(cuda_device_index(none), 1);
    none->ops->close(none);
    setenv("CUSIM_CAPABILITY", "75", 1);
    assert_int_equal(cuda_device_open(0, &none, &err), -1);
    assert_string_equal(err.text,
                        "device 0 (cusim) has compute capability 7.5: 8.0 or later is needed");
    unsetenv("CUSIM_CAPABILITY");
    unsetenv("CUSIM_DEVICES");
}

/* Words for an operator, before anything of the driver is started. */
static void drivers_that_do_not_do_are_named(void **state)
{
    (void)state;
    int32_t num = -1;
    struct device *none;
    setenv("CUSIM_DRIVER", "10020", 1);
    assert_int_equal(cuda_device_count(&num, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "the NVIDIA driver is too old: it is good for CUDA 10.2"));
    assert_int_equal(cuda_device_open(0, &none, &err), -1);
    setenv("CUSIM_DRIVER", "0", 1);
    assert_int_equal(cuda_device_count(&num, &err), -1);
    assert_non_null(strstr(err.text, "doesn't answer"));
    unsetenv("CUSIM_DRIVER");
    setenv("CUSIM_DEVICES", "0", 1);
    GOOD(cuda_device_count(&num, &err));
    assert_int_equal(num, 0);
    unsetenv("CUSIM_DEVICES");
}

/* With two devices in a process each call goes to its own, whichever was used last. */
static void devices_take_turns(void **state)
{
    (void)state;
    struct device *first = dev, *second;
    setenv("CUSIM_DEVICES", "2", 1);
    GOOD(cuda_device_open(1, &second, &err));
    struct words a = words_new();
    dev = second;
    struct words b = words_new();
    for (int i = 0; i < 4; i++) {
        dev = i % 2 ? first : second;
        struct words *w = i % 2 ? &a : &b;
        w->host[0] = i;
        GOOD(dev->ops->copy(dev, w->s, w->device, w->host, WORDS_BYTES, COPY_TO_DEVICE, &err));
        fetch(w, w->s);
        GOOD(dev->ops->stream_sync(dev, w->s, &err));
        assert_int_equal(w->host[0], i);
    }
    dev = second;
    words_free(&b);
    dev = first;
    words_free(&a);
    second->ops->close(second);
    unsetenv("CUSIM_DEVICES");
}

int main(void)
{
#define ON_A_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)
    const struct CMUnitTest tests[] = {
        ON_A_DEVICE(memory_is_zeroed_and_comes_back),
        ON_A_DEVICE(memory_peak_is_what_was_asked_for),
        ON_A_DEVICE(closing_frees_what_was_left),
        ON_A_DEVICE(streams_wait_for_events),
        ON_A_DEVICE(queues_come_before_compute),
        ON_A_DEVICE(failures_are_heard_by_all_until_their_stream_is_asked),
        ON_A_DEVICE(events_are_waited_for_by_any_thread),
        ON_A_DEVICE(captured_work_is_launched_often),
        ON_A_DEVICE(what_cannot_be_captured_says_why),
        cmocka_unit_test(devices_that_are_not_there_are_refused),
        cmocka_unit_test(drivers_that_do_not_do_are_named),
        ON_A_DEVICE(devices_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
