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
 *   - a gang gets all its devices or none, none that is drained, lost, kept for another job or not
 *     known to be free; what is kept, and who holds what, is the same after a start
 *   - a job gives way to one other, so often at most, and loses neither its age nor a restart
 *   - quotas and drains are as they were acknowledged; nobody starts beyond a quota's limit
 *   - a job starts when all that it waits for have succeeded, and not while it is held; nothing
 * runs on beyond its time limit or the grace of a stop
 *   - device-time is what the devices were held, added up the same way for jobs and tenants
 *   - the controller rests when nothing is due
 *   - once the faults are over, every job ends as it should, and nothing is left over */
#ifndef TANDEM_TESTS_SIM_CHECK_H
#define TANDEM_TESTS_SIM_CHECK_H

#include "server/feed.h"
#include "server/store/store.h"
#include "tests/sim/sim_client.h"

/* After a step of the controller, after its boot, with what it tells the feed. */
void sim_check_server(struct sim *s);
void sim_check_boot(struct sim *s);
void sim_check_feed(struct sim *s, const struct feed_mail *m);
/* sim_check_devices.c: parts of the first two. */
void sim_check_devices(struct sim *s);
void sim_check_figures(struct sim *s);
/* sim_check_queue.c: of an event that starts, stops or fails a job. delivered: it came from the
 * controller that is up. */
void sim_check_start(struct sim *s, const struct sim_job *j);
void sim_check_stop(struct sim *s, struct sim_job *j, const Event *e, bool delivered);
void sim_check_dependency(struct sim *s, const struct sim_job *j);
/* sim_check_time.c: now and then; at the end. */
void sim_check_time(struct sim *s);
void sim_check_accounts(struct sim *s, struct store *store);
/* How far the clock on the wall may have led the controller astray about it: not at all while one
 * controller saw all of it. */
int64_t sim_check_astray_us(const struct sim *s, const struct sim_held *h);
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
