/* Streams, events, and the queues of work between them. */
#ifndef TANDEM_KERNELS_CUSIM_STREAM_H
#define TANDEM_KERNELS_CUSIM_STREAM_H

#include "kernels/cusim/fiber.h"
#include "kernels/cusim/machine.h"

namespace cusim
{

/* One cudaEventRecord. The event knows its latest, and whoever waits the one that he means. */
struct record {
    int num_users;
    bool fired;
    double time_s;
    void *token;
    struct CUgraph_st *graph; /* recorded while a stream was captured: never fires by itself */
    int graph_item;
};
void record_put(struct record *r);

struct op {
    struct op *next;
    const char *what;
    work_fn fn; /* NULL: nothing but a wait or a record */
    void *args;
    size_t bytes;        /* of args */
    struct record *wait; /* not before this has fired */
    struct record *fire;
    void *token;
};

} // namespace cusim

/* Numbers below 0 come first. The order that work takes here doesn't depend on it. */
#define PRIORITY_GREATEST (-5)

struct CUstream_st {
    struct CUstream_st *next;
    int device;
    int priority;
    struct cusim::op *first, *last;
    bool waits; /* the work at its head waits for something outside */
    /* Under ThreadSanitizer its work runs there: a stream is a thread, with a stack of its own. */
    struct cusim::fiber fiber;
    char token[8];
    struct cusim::lanes *lanes; /* from its first kernel on */
    /* Its kernels run in that one's lanes: it is a graph's, and that one does nothing meanwhile. */
    struct CUstream_st *inside;
    struct CUgraph_st *capture; /* what is pushed goes there instead, as this lane's */
    int capture_lane;
};

struct CUevent_st {
    struct cusim::record *last;
    bool has_time;
};

namespace cusim
{

/* All that there are, of all devices. */
extern struct CUstream_st *streams;
/* What it needs to run work, and that again. */
void stream_begin(struct CUstream_st *s);
void stream_end(struct CUstream_st *s);
/* Where its kernels run; for its own work to ask. */
struct lanes *stream_lanes(struct CUstream_st *s);
/* The stream, which must be one: CUDA's stream 0 isn't allowed. */
struct CUstream_st *stream_check(cudaStream_t s, const char *what);
/* Takes over what lies in op. */
void stream_push(struct CUstream_st *s, const struct op *op);
bool stream_is_empty(void *s);
/* A wait for a record, a new record of what is in s now; borrowed and to be put. */
void stream_push_wait(struct CUstream_st *s, struct record *r);
struct record *stream_push_record(struct CUstream_st *s);
/* The stream whose work runs. */
struct CUstream_st *stream_running();

/* Is s captured, or is op a wait for something captured? Then it has become part of the graph. */
bool capture_take(struct CUstream_st *s, const struct op *op);

} // namespace cusim

#endif
