/* What the files sim_node*.c share. */
#ifndef TANDEM_TESTS_SIM_NODE_PRIVATE_H
#define TANDEM_TESTS_SIM_NODE_PRIVATE_H

#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_stream.h"

/* sim_node.c: numbers and keeps a report, and sends it where there is a stream. Takes up over. */
void sim_node_report(struct sim_node *n, WorkerUp *up);
void sim_node_maybe_leave(struct sim *s, struct sim_node *n);
/* sim_node_attach.c */
void sim_node_attach_after(struct sim *s, struct sim_node *n, int64_t delay_us);
void sim_node_abandon(struct sim *s, struct sim_node *n, const char *why);
int64_t sim_node_clock_us(const struct sim *s, const struct sim_node *n);
/* sim_node_gang.c */
void sim_node_start_gang(struct sim *s, struct sim_node *n, const struct sim_down *down);
/* Its ranks are to go, within most_us. */
void sim_node_stop_gang(struct sim *s, struct sim_node *n, int64_t most_us);
void sim_node_end(struct sim *s, struct sim_node *n);

#endif
