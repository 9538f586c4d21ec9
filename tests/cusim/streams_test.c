/* The fake cudart keeps CUDA's promises about streams, events and memory, and no more than these.
 */
#include "tests/cusim/side.h"

#include <stdatomic.h>

#include "tests/cusim/right.h"

static cudaStream_t s;
static int *counts;   /* device */
static unsigned *ids; /* device, 64 zeros */
static int *host;     /* pinned */

static int open_stream(void **state)
{
    (void)state;
    s = stream_open();
    MUST(cudaMalloc((void **)&counts, sizeof *counts));
    MUST(cudaMalloc((void **)&ids, 64 * sizeof *ids));
    MUST(cudaMallocHost((void **)&host, sizeof *host));
    MUST(cudaMemsetAsync(counts, 0, sizeof *counts, s));
    MUST(cudaMemsetAsync(ids, 0, 64 * sizeof *ids, s));
    MUST(cudaStreamSynchronize(s));
    return 0;
}

static int close_stream(void **state)
{
    (void)state;
    MUST(cudaFree(counts));
    MUST(cudaFree(ids));
    MUST(cudaFreeHost(host));
    MUST(cudaStreamDestroy(s));
    return 0;
}

/* A kernel in stream t: counts += 64. */
static void count(cudaStream_t t)
{
    MUST(right_histogram(t, counts, ids, 64, 1));
}

static void fetch(cudaStream_t t)
{
    MUST(cudaMemcpyAsync(host, counts, sizeof *host, cudaMemcpyDeviceToHost, t));
}

static void note(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* Eager work is done at once, lazy work not before somebody waits. */
static void schedules_say_when_work_runs(void **state)
{
    (void)state;
    atomic_int num_done = 0;
    cusim_schedule(CUSIM_FORWARD, CUSIM_LAZY, 1);
    count(s);
    MUST(cudaLaunchHostFunc(s, note, &num_done));
    assert_int_equal(atomic_load(&num_done), 0);
    MUST(cudaStreamSynchronize(s));
    assert_int_equal(atomic_load(&num_done), 1);
    cusim_schedule(CUSIM_FORWARD, CUSIM_EAGER, 1);
    MUST(cudaLaunchHostFunc(s, note, &num_done));
    assert_int_equal(atomic_load(&num_done), 2);
}

/* A wait means the record before it, whatever happens to the event afterwards. */
static void a_wait_is_for_the_latest_record_before_it(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        cudaStream_t other = stream_open();
        cudaEvent_t e;
        MUST(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        MUST(cudaStreamWaitEvent(other, e, 0)); /* never recorded: nothing */
        MUST(cudaMemsetAsync(counts, 0, sizeof *counts, s));
        count(s);
        MUST(cudaEventRecord(e, s));
        MUST(cudaStreamWaitEvent(other, e, 0));
        MUST(cudaEventRecord(e, other));
        fetch(other);
        MUST(cudaEventDestroy(e));
        MUST(cudaStreamSynchronize(other));
        assert_int_equal(*host, 64);
        MUST(cudaStreamDestroy(other));
    }
}

/* Who only looks gets there, too. */
static void queries_let_the_device_go_on(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        cudaEvent_t e;
        MUST(cudaEventCreateWithFlags(&e, cudaEventDefault));
        count(s);
        MUST(cudaEventRecord(e, s));
        fetch(s);
        int num_tries = 0;
        while (cudaEventQuery(e) == cudaErrorNotReady) {
            assert_true(num_tries++ < 1000);
        }
        while (cudaStreamQuery(s) == cudaErrorNotReady) {
            assert_true(num_tries++ < 1000);
        }
        float ms = -1;
        MUST(cudaEventElapsedTime(&ms, e, e));
        assert_true(ms == 0);
        MUST(cudaEventDestroy(e));
    }
}

/* From memory that isn't pinned a copy takes what is there when it is called; into it, it returns
 * when it is done. Both are counted. */
static void pageable_memory_makes_copies_wait(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        int64_t before = cusim_counted().pageable_copies;
        int value = 41;
        MUST(cudaMemcpyAsync(counts, &value, sizeof value, cudaMemcpyHostToDevice, s));
        value = 0;
        MUST(cudaMemcpyAsync(&value, counts, sizeof value, cudaMemcpyDeviceToHost, s));
        assert_int_equal(value, 41);
        fetch(s);
        assert_int_equal(cusim_counted().pageable_copies, before + 2);
        MUST(cudaStreamSynchronize(s));
    }
}

static void add_one(void *arg)
{
    ++*(int *)arg;
}

static void host_functions_run_in_the_streams_order(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        MUST(cudaMemsetAsync(counts, 0, sizeof *counts, s));
        fetch(s);
        MUST(cudaLaunchHostFunc(s, add_one, host));
        MUST(cudaLaunchHostFunc(s, add_one, host));
        MUST(cudaMemcpyAsync(counts, host, sizeof *host, cudaMemcpyHostToDevice, s));
        MUST(cudaDeviceSynchronize());
        assert_int_equal(*host, 2);
    }
}

/* A captured stream runs nothing; each launch runs all of it, behind what is in the stream. */
static void graphs_are_captured_once_and_launched_often(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        cudaStream_t other = stream_open();
        cudaEvent_t there, back;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        enum cudaStreamCaptureStatus status;
        MUST(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
        MUST(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
        MUST(cudaMemsetAsync(counts, 0, sizeof *counts, s));
        MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        count(s);
        MUST(cudaEventRecord(there, s));
        MUST(cudaStreamWaitEvent(other, there, 0));
        MUST(cudaStreamIsCapturing(other, &status));
        assert_int_equal(status, cudaStreamCaptureStatusActive);
        count(other);
        assert_int_equal(cudaStreamSynchronize(other), cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaEventQuery(there), cudaErrorCapturedEvent);
        assert_int_equal(cudaGetLastError(), cudaErrorCapturedEvent);
        MUST(cudaEventRecord(back, other));
        MUST(cudaStreamWaitEvent(s, back, 0));
        fetch(s);
        MUST(cudaStreamEndCapture(s, &graph));
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        MUST(cudaGraphDestroy(graph));
        struct cusim_counts before = cusim_counted();
        for (int launch = 1; launch <= 3; launch++) {
            MUST(cudaGraphLaunch(exec, s));
            assert_int_equal(cusim_counted().graphs, before.graphs + launch);
            assert_int_equal(cusim_counted().replayed, before.replayed + 3 * launch);
            MUST(cudaStreamSynchronize(s));
            assert_int_equal(*host, 128 * launch);
        }
        MUST(cudaGraphLaunch(exec, s));
        MUST(cudaGraphLaunch(exec, s));
        fetch(s);
        MUST(cudaStreamSynchronize(s));
        assert_int_equal(*host, 128 * 5);
        MUST(cudaGraphExecDestroy(exec));
        MUST(cudaEventDestroy(there));
        MUST(cudaEventDestroy(back));
        MUST(cudaStreamDestroy(other));
    }
}

/* A set of threads is 100 MB to ThreadSanitizer, and a run has hundreds of graphs. */
static void graphs_run_on_the_threads_of_their_stream(void **state)
{
    (void)state;
    enum { NUM = 12 };
    cudaGraphExec_t execs[NUM];
    cudaStream_t other = stream_open();
    int64_t before = cusim_counted().lanes;
    for (int i = 0; i < NUM; i++) {
        cudaGraph_t graph;
        MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        count(s);
        MUST(cudaStreamEndCapture(s, &graph));
        MUST(cudaGraphInstantiate(&execs[i], graph, 0));
        MUST(cudaGraphDestroy(graph));
        MUST(cudaGraphLaunch(execs[i], s));
        MUST(cudaGraphLaunch(execs[i], s));
        MUST(cudaStreamSynchronize(s));
        MUST(cudaGraphLaunch(execs[i], other));
        MUST(cudaStreamSynchronize(other));
    }
    assert_true(cusim_counted().lanes <= before + 2);
    MUST(cudaStreamDestroy(other));
    count(s);
    for (int i = 0; i < NUM; i++) {
        MUST(cudaGraphLaunch(execs[i], s));
        MUST(cudaGraphExecDestroy(execs[i]));
    }
    fetch(s);
    MUST(cudaStreamSynchronize(s));
    assert_int_equal(*host, 64 * (4 * NUM + 1));
}

static void a_graph_ends_where_it_began(void **state)
{
    (void)state;
    cudaStream_t other = stream_open();
    cudaEvent_t there;
    cudaGraph_t graph;
    MUST(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
    assert_int_equal(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal),
                     cudaErrorIllegalState);
    int value = 1;
    assert_int_equal(cudaMemcpyAsync(counts, &value, sizeof value, cudaMemcpyHostToDevice, s),
                     cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaGetLastError(), cudaErrorStreamCaptureUnsupported);
    MUST(cudaEventRecord(there, s));
    MUST(cudaStreamWaitEvent(other, there, 0));
    count(other);
    assert_int_equal(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    assert_int_equal(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
    assert_null(graph);
    cudaGetLastError();
    count(other); /* both are as before */
    MUST(cudaStreamSynchronize(other));
    MUST(cudaEventDestroy(there));
    MUST(cudaStreamDestroy(other));
}

/* An error is the calling thread's, and is there until it is asked for. */
static void wrong_launches_are_errors(void **state)
{
    (void)state;
    int64_t before = cusim_counted().launches;
    assert_int_equal(right_histogram(s, counts, ids, 64, 20000), cudaErrorInvalidValue);
    assert_int_equal(right_transpose(s, (float *)counts, (float *)counts, 0, 0),
                     cudaErrorInvalidConfiguration);
    MUST(cudaGetLastError());
    assert_int_equal(cusim_counted().launches, before);
}

static void memory_runs_out_and_comes_back(void **state)
{
    (void)state;
    size_t free_bytes, total, free_before;
    void *mem, *more;
    MUST(cudaMemGetInfo(&free_before, &total));
    assert_int_equal(cudaMalloc(&mem, total + 1), cudaErrorMemoryAllocation);
    assert_null(mem);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    MUST(cudaMalloc(&mem, 1000));
    MUST(cudaMalloc(&more, 0));
    assert_null(more);
    MUST(cudaMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes == free_before - 1000);
    assert_true((uintptr_t)mem % 256 == 0);
    MUST(cudaFree(mem));
    assert_int_equal(cudaFree(&total), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(counts), cudaErrorInvalidValue);
    cudaGetLastError();
    MUST(cudaMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes == free_before);
}

static void devices_say_what_they_are(void **state)
{
    (void)state;
    int num = 0, major = 0;
    MUST(cudaGetDeviceCount(&num));
    assert_int_equal(num, 1);
    MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    assert_int_equal(major, 9);
    struct cudaDeviceProp prop;
    MUST(cudaGetDeviceProperties(&prop, 0));
    assert_string_equal(prop.name, "cusim");
    char bus[32];
    MUST(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    assert_string_equal(bus, "0000:01:00.0");
    assert_int_equal(cudaDeviceGetPCIBusId(bus, 4, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetDeviceProperties(&prop, 1), cudaErrorInvalidDevice);
    assert_int_equal(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1),
                     cudaErrorInvalidDevice);
    setenv("CUSIM_CAPABILITY", "75", 1);
    MUST(cudaGetDeviceProperties(&prop, 0));
    assert_int_equal(prop.major * 10 + prop.minor, 75);
    unsetenv("CUSIM_CAPABILITY");
    setenv("CUSIM_DEVICES", "0", 1);
    num = -1;
    assert_int_equal(cudaGetDeviceCount(&num), cudaErrorNoDevice);
    assert_int_equal(num, -1); /* untouched, as without a driver */
    unsetenv("CUSIM_DEVICES");
    cudaGetLastError();
}

/* A driver of an older major version runs nothing, and says so before it counts devices. */
static void drivers_say_how_old_they_are(void **state)
{
    (void)state;
    int version = 0, num = -1;
    MUST(cudaDriverGetVersion(&version));
    assert_int_equal(version, CUDART_VERSION);
    setenv("CUSIM_DRIVER", "10020", 1);
    MUST(cudaDriverGetVersion(&version));
    assert_int_equal(version, 10020);
    assert_int_equal(cudaGetDeviceCount(&num), cudaErrorInsufficientDriver);
    assert_int_equal(num, -1);
    unsetenv("CUSIM_DRIVER");
    cudaGetLastError();
}

static void streams_have_priorities_within_the_range(void **state)
{
    (void)state;
    int least, greatest, priority;
    MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    assert_true(greatest < least);
    const int asked[][2] = {{greatest, greatest}, {least, least}, {greatest - 1, greatest}, {7, 0}};
    for (int i = 0; i < 4; i++) {
        cudaStream_t t;
        MUST(cudaStreamCreateWithPriority(&t, cudaStreamNonBlocking, asked[i][0]));
        MUST(cudaStreamGetPriority(t, &priority));
        assert_int_equal(priority, asked[i][1]);
        MUST(cudaStreamDestroy(t));
    }
}

static void schedules_are_read_from_text(void **state)
{
    (void)state;
    assert_int_equal(cusim_schedule_text("reverse,random,7"), 0);
    assert_int_equal(cusim_schedule_text("random,lazy,1"), 0);
    assert_int_equal(cusim_schedule_text("reverse,random"), -1);
    assert_int_equal(cusim_schedule_text("reverse,sideways,7"), -1);
    assert_int_equal(cusim_schedule_text("rev,random,7"), -1);
    assert_int_equal(cusim_schedule_text("reverse,random,7x"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(schedules_say_when_work_runs, open_stream, close_stream),
        cmocka_unit_test_setup_teardown(a_wait_is_for_the_latest_record_before_it, open_stream,
                                        close_stream),
        cmocka_unit_test_setup_teardown(queries_let_the_device_go_on, open_stream, close_stream),
        cmocka_unit_test_setup_teardown(pageable_memory_makes_copies_wait, open_stream,
                                        close_stream),
        cmocka_unit_test_setup_teardown(host_functions_run_in_the_streams_order, open_stream,
                                        close_stream),
        cmocka_unit_test_setup_teardown(graphs_are_captured_once_and_launched_often, open_stream,
                                        close_stream),
        cmocka_unit_test_setup_teardown(graphs_run_on_the_threads_of_their_stream, open_stream,
                                        close_stream),
        cmocka_unit_test_setup_teardown(a_graph_ends_where_it_began, open_stream, close_stream),
        cmocka_unit_test_setup_teardown(wrong_launches_are_errors, open_stream, close_stream),
        cmocka_unit_test_setup_teardown(memory_runs_out_and_comes_back, open_stream, close_stream),
        cmocka_unit_test(devices_say_what_they_are),
        cmocka_unit_test(drivers_say_how_old_they_are),
        cmocka_unit_test(streams_have_priorities_within_the_range),
        cmocka_unit_test(schedules_are_read_from_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
