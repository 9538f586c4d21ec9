/* The Attach streams: in order, delayed, and breakable at any moment; each end hears of a break in
 * its own time. */
#ifndef TANDEM_TESTS_SIM_STREAM_H
#define TANDEM_TESTS_SIM_STREAM_H

#include "server/rpc/call.h"
#include "tests/sim/sim.h"

struct sim_stream {
    struct sim *sim;
    struct sim_stream *next;
    struct sim_node *node; /* NULL: a ghost's, whom nobody hears */
    struct caller who;
    struct call *call; /* a reference; NULL once both ends are done with it */
    int64_t generation;
    bool broken;
    bool spoke;             /* the controller has heard something */
    bool told;              /* ... and that it is closed */
    bool over;              /* ended by the controller */
    int64_t up_us, down_us; /* nothing arrives before what was sent earlier */
};

/* To the controller that is up, as who. */
struct sim_stream *sim_stream_open(struct sim *s, struct sim_node *node, int64_t job,
                                   int32_t attempt);
/* Takes up over. */
void sim_stream_up(struct sim_stream *st, WorkerUp *up);
/* by_node: it knows already. */
void sim_stream_break(struct sim_stream *st, bool by_node);
void sim_stream_server_gone(struct sim *s);
void sim_stream_free_all(struct sim *s);

#endif
