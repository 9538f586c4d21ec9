/* Mistakes of the host: work in two streams, or in a stream and on the host, that nothing orders.
 */
#include "tests/cusim/faults.h"

#define NUM_LANES 32

static __global__ void change(float *x, float times, float by)
{
    x[threadIdx.x] = x[threadIdx.x] * times + by;
}

/* With a barrier in it: what its threads know of each other must not order streams. */
static __global__ void change_turned(float *x, float times, float by)
{
    CU_SHARED(float, y, [NUM_LANES]);
    y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = y[NUM_LANES - 1 - threadIdx.x] * times + by;
}

struct two {
    struct bench b;
    cudaStream_t other;
    cudaEvent_t event;
};

static struct two two_open()
{
    struct two t = {bench_open(NUM_LANES), nullptr, nullptr};
    must(cudaStreamCreateWithFlags(&t.other, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&t.event, cudaEventDisableTiming));
    for (int i = 0; i < NUM_LANES; i++) {
        t.b.host[i] = 1;
    }
    must(cudaMemcpyAsync(t.b.device, t.b.host, t.b.bytes, cudaMemcpyHostToDevice, t.b.s));
    must(cudaStreamSynchronize(t.b.s));
    return t;
}

static int two_close(struct two *t, float want)
{
    must(cudaStreamSynchronize(t->other));
    bench_fetch(&t->b);
    int rc = bench_check(t->b.host, NUM_LANES, want);
    must(cudaEventDestroy(t->event));
    must(cudaStreamDestroy(t->other));
    bench_close(&t->b);
    return rc;
}

static void launch(void (*kernel)(float *, float, float), cudaStream_t s, float *x, float times,
                   float by)
{
    CU_LAUNCH(kernel, dim3(1), dim3(NUM_LANES), 0, s, x, times, by);
}

static void order(struct two *t, cudaStream_t first, cudaStream_t then)
{
    must(cudaEventRecord(t->event, first));
    must(cudaStreamWaitEvent(then, t->event, 0));
}

static int run_kernels_unordered(int right)
{
    struct two t = two_open();
    launch(change_turned, t.b.s, t.b.device, 1, 1);
    if (right) {
        order(&t, t.b.s, t.other);
    }
    launch(change_turned, t.other, t.b.device, 2, 0);
    return two_close(&t, 4);
}

/* The copy follows something else in its stream, which has nothing to do with it. */
static int run_copy_unordered(int right)
{
    struct two t = two_open();
    float *elsewhere;
    must(cudaMalloc((void **)&elsewhere, t.b.bytes));
    must(cudaMemsetAsync(elsewhere, 0, t.b.bytes, t.other));
    launch(change_turned, t.b.s, t.b.device, 1, 1);
    launch(change_turned, t.other, elsewhere, 1, 1);
    if (right) {
        order(&t, t.b.s, t.other);
    }
    must(cudaMemcpyAsync(t.b.host, t.b.device, t.b.bytes, cudaMemcpyDeviceToHost, t.other));
    must(cudaStreamSynchronize(t.other));
    must(cudaStreamSynchronize(t.b.s));
    int rc = bench_check(t.b.host, NUM_LANES, 2);
    must(cudaFree(elsewhere));
    return two_close(&t, 2) | rc;
}

/* The event was recorded before the work that was meant. */
static int run_event_too_early(int right)
{
    struct two t = two_open();
    if (!right) {
        must(cudaEventRecord(t.event, t.b.s));
    }
    launch(change, t.b.s, t.b.device, 1, 1);
    if (right) {
        must(cudaEventRecord(t.event, t.b.s));
    }
    must(cudaStreamWaitEvent(t.other, t.event, 0));
    launch(change, t.other, t.b.device, 2, 0);
    return two_close(&t, 4);
}

/* The way back: the first stream goes on before the second is done with it. */
static int run_no_way_back(int right)
{
    struct two t = two_open();
    launch(change, t.b.s, t.b.device, 1, 1);
    order(&t, t.b.s, t.other);
    launch(change, t.other, t.b.device, 2, 0);
    if (right) {
        order(&t, t.other, t.b.s);
    }
    launch(change, t.b.s, t.b.device, 1, 3);
    return two_close(&t, 7);
}

static int run_host_reads_early(int right)
{
    struct two t = two_open();
    launch(change, t.b.s, t.b.device, 1, 1);
    must(cudaMemcpyAsync(t.b.host, t.b.device, t.b.bytes, cudaMemcpyDeviceToHost, t.b.s));
    if (right) {
        must(cudaStreamSynchronize(t.b.s));
    }
    int rc = bench_check(t.b.host, NUM_LANES, 2);
    return two_close(&t, 2) | rc;
}

static int run_host_writes_early(int right)
{
    struct two t = two_open();
    must(cudaMemcpyAsync(t.b.device, t.b.host, t.b.bytes, cudaMemcpyHostToDevice, t.b.s));
    must(cudaEventRecord(t.event, t.b.s));
    if (right) {
        must(cudaEventSynchronize(t.event));
    }
    for (int i = 0; i < NUM_LANES; i++) {
        t.b.host[i] = 9;
    }
    return two_close(&t, 1);
}

/* An edge that a graph lacks: two streams of it change the same numbers. */
static int run_graph_unordered(int right)
{
    struct two t = two_open();
    cudaEvent_t back;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
    must(cudaStreamBeginCapture(t.b.s, cudaStreamCaptureModeThreadLocal));
    if (!right) {
        order(&t, t.b.s, t.other);
    }
    launch(change_turned, t.b.s, t.b.device, 1, 1);
    if (right) {
        order(&t, t.b.s, t.other);
    }
    launch(change_turned, t.other, t.b.device, 2, 0);
    must(cudaEventRecord(back, t.other));
    must(cudaStreamWaitEvent(t.b.s, back, 0));
    must(cudaStreamEndCapture(t.b.s, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    must(cudaGraphDestroy(graph));
    must(cudaGraphLaunch(exec, t.b.s));
    must(cudaGraphLaunch(exec, t.b.s));
    int rc = two_close(&t, 10);
    must(cudaGraphExecDestroy(exec));
    must(cudaEventDestroy(back));
    return rc;
}

/* Two streams launch a graph each, and nothing orders the two. */
static int run_graphs_unordered(int right)
{
    struct two t = two_open();
    cudaGraph_t graph;
    cudaGraphExec_t execs[2];
    for (int i = 0; i < 2; i++) {
        must(cudaStreamBeginCapture(t.b.s, cudaStreamCaptureModeThreadLocal));
        launch(change_turned, t.b.s, t.b.device, (float)(i + 1), (float)(1 - i));
        must(cudaStreamEndCapture(t.b.s, &graph));
        must(cudaGraphInstantiate(&execs[i], graph, 0));
        must(cudaGraphDestroy(graph));
    }
    must(cudaGraphLaunch(execs[0], t.b.s));
    if (right) {
        order(&t, t.b.s, t.other);
    }
    must(cudaGraphLaunch(execs[1], t.other));
    int rc = two_close(&t, 4);
    must(cudaGraphExecDestroy(execs[0]));
    must(cudaGraphExecDestroy(execs[1]));
    return rc;
}

const struct fault stream_faults[] = {
    {"kernels_unordered", run_kernels_unordered},
    {"copy_unordered", run_copy_unordered},
    {"event_too_early", run_event_too_early},
    {"no_way_back", run_no_way_back},
    {"host_reads_early", run_host_reads_early},
    {"host_writes_early", run_host_writes_early},
    {"graph_unordered", run_graph_unordered},
    {"graphs_unordered", run_graphs_unordered},
    {nullptr, nullptr},
};
