/* The invariants: what may never be seen, whatever breaks.
 *
 *   - a job moves by the table only, and nobody hears of a move that a crash takes back
 *   - what was acknowledged stays: submits, cancels, pauses, holds; no key makes two jobs
 *   - devices in use = devices of live attempts; no device has two living gangs
 *   - a report that was acknowledged is in the database
 *   - attempts count up; a result that a gang reached isn't run again
 *   - a restart waits for its backoff, and goes on from the newest checkpoint that was acknowledged
 *   - a gang that the controller hears stops soon after a pause was acknowledged
 *   - the curve of a finished job has each step once, with the loss of that step
 *   - once the faults are over, every job ends as it should, and nothing is left over */
#ifndef TANDEM_TESTS_SIM_CHECK_H
#define TANDEM_TESTS_SIM_CHECK_H

#include "server/feed.h"
#include "tests/sim/sim.h"

/* After a step of the controller, after its boot, with what it tells the feed. */
void sim_check_server(struct sim *s);
void sim_check_boot(struct sim *s);
void sim_check_feed(struct sim *s, const struct feed_mail *m);
/* A gang is about to train. */
void sim_check_gang(struct sim *s, const struct sim_node *n);
/* From its step on. */
void sim_check_resume(struct sim *s, const struct sim_node *n);
/* It has made a step. */
void sim_check_step(struct sim *s, const struct sim_node *n);
/* All jobs have ended, and nothing runs any more. */
bool sim_check_is_quiet(struct sim *s);
void sim_check_end(struct sim *s);

#endif
