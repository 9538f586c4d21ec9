/* Graphs: what is pushed into captured streams is kept, and pushed again at each launch into
 * streams that the graph has for itself, with the same waits between them. So a graph takes all the
 * orders that its edges allow, and no others. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cusim/stream.h"

namespace cusim
{

#define MAX_ITEMS 4096
#define MAX_LANES 8

struct item {
    int lane;
    struct op op; /* the work, with args that are ours */
    bool is_record;
    int waits_for; /* a record's item, -1 */
};

} // namespace cusim

using namespace cusim;

struct CUgraph_st {
    int num_items, num_lanes;
    struct item items[MAX_ITEMS];
    struct CUstream_st *captured[MAX_LANES]; /* lane 0: the one it began with */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph; /* ours */
    cudaStream_t lanes[MAX_LANES];
};

namespace cusim
{

static struct item *item_new(struct CUgraph_st *g, int lane)
{
    if (g->num_items == MAX_ITEMS) {
        fail("more than %d pieces of work in a graph", MAX_ITEMS);
    }
    struct item *i = &g->items[g->num_items++];
    *i = {};
    i->lane = lane;
    i->waits_for = -1;
    return i;
}

static void join_capture(struct CUgraph_st *g, struct CUstream_st *s)
{
    if (g->num_lanes == MAX_LANES) {
        fail("more than %d streams in a graph", MAX_LANES);
    }
    s->capture = g;
    s->capture_lane = g->num_lanes;
    g->captured[g->num_lanes++] = s;
}

bool capture_take(struct CUstream_st *s, const struct op *op)
{
    struct CUgraph_st *of_wait = op->wait ? op->wait->graph : nullptr;
    if (!s->capture && !of_wait) {
        return false;
    }
    if (!s->capture) {
        join_capture(of_wait, s);
    }
    if (op->wait && of_wait != s->capture) {
        fail("a captured stream waits for an event that isn't part of its graph");
    }
    struct CUgraph_st *g = s->capture;
    struct item *i = item_new(g, s->capture_lane);
    i->op = *op;
    i->is_record = op->fire != nullptr;
    if (op->fire) {
        op->fire->graph = g;
        op->fire->graph_item = g->num_items - 1;
    }
    if (op->wait) {
        i->waits_for = op->wait->graph_item;
    }
    record_put(op->wait);
    record_put(op->fire);
    i->op.wait = i->op.fire = nullptr;
    return true;
}

/* Does all that a lane did lead back to lane 0? */
static bool all_joined(const struct CUgraph_st *g)
{
    int last[MAX_LANES];
    bool joined[MAX_LANES] = {true};
    for (int i = 0; i < g->num_items; i++) {
        last[g->items[i].lane] = i;
    }
    for (int round = 0; round < g->num_lanes; round++) {
        for (int i = 0; i < g->num_items; i++) {
            int from = g->items[i].waits_for;
            if (from >= 0 && joined[g->items[i].lane] && last[g->items[from].lane] == from) {
                joined[g->items[from].lane] = true;
            }
        }
    }
    for (int lane = 0; lane < g->num_lanes; lane++) {
        if (!joined[lane]) {
            return false;
        }
    }
    return true;
}

static void graph_free(struct CUgraph_st *g)
{
    for (int i = 0; g && i < g->num_items; i++) {
        free(g->items[i].op.args);
    }
    free(g);
}

static void *copy_of(const void *mem, size_t bytes)
{
    return mem ? memcpy(malloc(bytes), mem, bytes) : nullptr;
}

static struct CUgraph_st *graph_copy(const struct CUgraph_st *g)
{
    struct CUgraph_st *copy = (struct CUgraph_st *)copy_of(g, sizeof *g);
    for (int i = 0; i < g->num_items; i++) {
        copy->items[i].op.args = copy_of(g->items[i].op.args, g->items[i].op.bytes);
    }
    return copy;
}

/* Pushes it all: behind what is in s now, and before what comes into s later. */
static void graph_push(const struct CUgraphExec_st *e, struct CUstream_st *s)
{
    const struct CUgraph_st *g = e->graph;
    struct record **records = (struct record **)calloc((size_t)g->num_items + 1, sizeof *records);
    struct record *before = stream_push_record(s);
    /* The first lane's kernels come behind what is in s now, and before what comes later: they run
     * where those of s do. Threads of their own would be a megabyte each to ThreadSanitizer. Not
     * so where it still has to run in another stream. */
    struct CUstream_st *first = e->lanes[0];
    first->inside = stream_is_empty(first) || first->inside == s ? s : nullptr;
    for (int lane = 0; lane < g->num_lanes; lane++) {
        stream_push_wait(e->lanes[lane], before);
    }
    record_put(before);
    for (int i = 0; i < g->num_items; i++) {
        const struct item *item = &g->items[i];
        struct CUstream_st *lane = e->lanes[item->lane];
        if (item->waits_for >= 0) {
            stream_push_wait(lane, records[item->waits_for]);
        } else if (item->is_record) {
            records[i] = stream_push_record(lane);
        } else {
            struct op op = item->op;
            op.args = copy_of(op.args, op.bytes);
            counts.replayed++;
            stream_push(lane, &op);
        }
    }
    for (int lane = 0; lane < g->num_lanes; lane++) {
        struct record *after = stream_push_record(e->lanes[lane]);
        stream_push_wait(s, after);
        record_put(after);
    }
    for (int i = 0; i < g->num_items; i++) {
        record_put(records[i]);
    }
    free(records);
}

} // namespace cusim

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    struct machine_guard guard;
    stream_check(s, "cudaStreamBeginCapture");
    if (s->capture) {
        return machine_error(cudaErrorIllegalState);
    }
    join_capture((struct CUgraph_st *)calloc(1, sizeof(struct CUgraph_st)), s);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    struct machine_guard guard;
    struct CUgraph_st *g = s->capture;
    *out = nullptr;
    if (!g || g->captured[0] != s) {
        return machine_error(g ? cudaErrorStreamCaptureUnmatched : cudaErrorIllegalState);
    }
    for (int lane = 0; lane < g->num_lanes; lane++) {
        g->captured[lane]->capture = nullptr;
    }
    if (!all_joined(g)) {
        graph_free(g);
        return machine_error(cudaErrorStreamCaptureUnjoined);
    }
    *out = g;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    struct machine_guard guard;
    *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
#else
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, cudaGraphNode_t *, char *,
                                 size_t)
#endif
{
    struct machine_guard guard;
    struct CUgraphExec_st *e = (struct CUgraphExec_st *)calloc(1, sizeof *e);
    e->graph = graph_copy(g);
    for (int lane = 0; lane < g->num_lanes; lane++) {
        cudaStreamCreateWithFlags(&e->lanes[lane], cudaStreamNonBlocking);
    }
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    struct machine_guard guard;
    stream_check(s, "cudaGraphLaunch");
    if (s->capture) {
        return machine_error(cudaErrorStreamCaptureUnsupported);
    }
    counts.graphs++;
    graph_push(e, s);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    struct machine_guard guard;
    graph_free(g);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    struct machine_guard guard;
    for (int lane = 0; lane < e->graph->num_lanes; lane++) {
        cudaStreamDestroy(e->lanes[lane]);
    }
    graph_free(e->graph);
    free(e);
    return cudaSuccess;
}

} // extern "C"
