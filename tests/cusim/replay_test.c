/* Work of a step as captured work (runtime/rank/replay.h), on the simulator. */
#include "tests/cusim/side.h"

#include "kernels/cuda/device.h"
#include "runtime/rank/replay.h"
#include "tests/cusim/right.h"

static struct device *dev;
static struct stream *compute;
static int32_t *counter, *host; /* device, pinned */
static struct error err;
static struct replay *replay;

static int open_all(void **state)
{
    (void)state;
    cusim_schedule(CUSIM_FORWARD, CUSIM_LAZY, 1);
    GOOD(cuda_device_open(0, &dev, &err));
    GOOD(dev->ops->stream_new(dev, STREAM_INLINE, &compute, &err));
    GOOD(replay_new(&replay, dev, compute, &err));
    counter = dev->ops->alloc(dev, 64 * sizeof(*counter), MEM_DEVICE);
    host = dev->ops->alloc(dev, sizeof(*host), MEM_HOST);
    return counter != NULL && host != NULL ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    GOOD(dev->ops->stream_sync(dev, compute, &err));
    replay_free(replay);
    dev->ops->free(dev, counter);
    dev->ops->free(dev, host);
    dev->ops->stream_free(dev, compute);
    dev->ops->close(dev);
    return 0;
}

/* What a call adds to the counter, and how it goes wrong. */
struct work {
    int32_t n;
    int num_calls;
    bool fails_captured, fails_always;
    struct event *elsewhere; /* recorded, and waited for in another stream that doesn't come back */
    struct stream *other;
};

static int count(void *arg, struct error *e)
{
    struct work *w = arg;
    enum cudaStreamCaptureStatus status;
    w->num_calls++;
    MUST(cudaStreamIsCapturing(cuda_stream_of(compute), &status));
    bool captured = status == cudaStreamCaptureStatusActive;
    MUST(right_histogram(cuda_stream_of(compute), counter, (unsigned *)counter + 32, w->n, 1));
    if (w->elsewhere && captured) {
        GOOD(dev->ops->event_record(dev, w->elsewhere, compute, &err));
        GOOD(dev->ops->stream_wait(dev, w->other, w->elsewhere, &err));
        GOOD(dev->ops->zero(dev, w->other, counter + 1, 4, &err));
    }
    if (w->fails_always || (w->fails_captured && captured)) {
        return error_set(e, ERR_INTERNAL, "the work fails");
    }
    return 0;
}

static int32_t total(void)
{
    GOOD(dev->ops->copy(dev, compute, host, counter, sizeof(*host), COPY_TO_HOST, &err));
    GOOD(dev->ops->stream_sync(dev, compute, &err));
    return *host;
}

/* Once by hand, once captured, then launched; each time it is done once. */
static void work_is_captured_when_it_comes_again(void **state)
{
    (void)state;
    struct work w = {.n = 7};
    struct replay_key key = {.kind = 1, .unit_end = 3, .places = 99};
    for (int i = 1; i <= 6; i++) {
        GOOD(replay_run(replay, &key, count, &w, &err));
        assert_int_equal(total(), 7 * i);
    }
    assert_int_equal(w.num_calls, 2);
    struct replay_counts c = replay_counted(replay);
    assert_int_equal(c.direct, 1);
    assert_int_equal(c.captured, 1);
    assert_int_equal(c.launched, 5);
}

/* What differs in any part of its key is other work. */
static void other_places_are_other_work(void **state)
{
    (void)state;
    const struct replay_key keys[] = {{0, 0, 3, 1}, {1, 0, 3, 1}, {0, 1, 3, 1},
                                      {0, 0, 4, 1}, {0, 0, 3, 2}, {0, 3, 0, 1}};
    struct work works[6] = {{.n = 1}, {.n = 2}, {.n = 3}, {.n = 4}, {.n = 5}, {.n = 6}};
    for (int round = 1; round <= 4; round++) {
        for (int i = 0; i < 6; i++) {
            GOOD(replay_run(replay, &keys[i], count, &works[i], &err));
        }
        assert_int_equal(total(), 21 * round);
    }
    assert_int_equal(replay_counted(replay).captured, 6);
    assert_int_equal(replay_counted(replay).launched, 18);
}

/* What can't be captured is done as it comes, once each time. */
static void what_cannot_be_captured_is_done_all_the_same(void **state)
{
    (void)state;
    struct work works[2] = {{.n = 1, .fails_captured = true}, {.n = 10}};
    GOOD(dev->ops->event_new(dev, &works[1].elsewhere, &err));
    GOOD(dev->ops->stream_new(dev, STREAM_QUEUE, &works[1].other, &err));
    for (int round = 1; round <= 4; round++) {
        for (int i = 0; i < 2; i++) {
            struct replay_key key = {.kind = i};
            GOOD(replay_run(replay, &key, count, &works[i], &err));
        }
        assert_int_equal(total(), 11 * round);
    }
    struct replay_counts c = replay_counted(replay);
    assert_int_equal(c.refused, 2);
    assert_int_equal(c.launched, 0);
    assert_int_equal(c.direct, 8);
    GOOD(dev->ops->stream_sync(dev, works[1].other, &err));
    dev->ops->event_free(dev, works[1].elsewhere);
    dev->ops->stream_free(dev, works[1].other);
}

static void work_that_fails_fails(void **state)
{
    (void)state;
    struct work w = {.n = 1};
    struct replay_key key = {0};
    GOOD(replay_run(replay, &key, count, &w, &err));
    w.fails_always = true;
    struct error told = {0};
    assert_int_equal(replay_run(replay, &key, count, &w, &told), -1);
    assert_string_equal(told.text, "the work fails");
}

/* Without a place to keep graphs work is what it was. */
static void without_replay_work_is_done_as_it_comes(void **state)
{
    (void)state;
    struct work w = {.n = 2};
    struct replay_key key = {0};
    for (int i = 1; i <= 3; i++) {
        GOOD(replay_run(NULL, &key, count, &w, &err));
        assert_int_equal(total(), 2 * i);
    }
    assert_int_equal(w.num_calls, 3);
    assert_int_equal(replay_counted(NULL).launched, 0);
    replay_free(NULL);
}

static int count_call(void *arg, struct error *e)
{
    (void)e;
    (*(int *)arg)++;
    return 0;
}

/* More kinds of work than there is room for: the rest is never captured. What comes but once needs
 * no kernel, which would take sanitizers long. */
static void work_without_end_is_not_captured(void **state)
{
    (void)state;
    struct work w = {.n = 1};
    int calls = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2100; i++) {
            struct replay_key key = {.places = (uint64_t)i};
            if (i % 50 == 0) {
                GOOD(replay_run(replay, &key, count, &w, &err));
            } else if (round == 0) {
                GOOD(replay_run(replay, &key, count_call, &calls, &err));
            }
        }
    }
    assert_int_equal(total(), 3 * 42);
    assert_int_equal(calls, 2100 - 42);
    assert_int_equal(replay_counted(replay).captured, 41); /* of 2048 */
}

int main(void)
{
#define ON_A_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)
    const struct CMUnitTest tests[] = {
        ON_A_DEVICE(work_is_captured_when_it_comes_again),
        ON_A_DEVICE(other_places_are_other_work),
        ON_A_DEVICE(what_cannot_be_captured_is_done_all_the_same),
        ON_A_DEVICE(work_that_fails_fails),
        ON_A_DEVICE(without_replay_work_is_done_as_it_comes),
        ON_A_DEVICE(work_without_end_is_not_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
