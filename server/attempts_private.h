/* What the files attempts*.c share. */
#ifndef TANDEM_SERVER_ATTEMPTS_PRIVATE_H
#define TANDEM_SERVER_ATTEMPTS_PRIVATE_H

#include "server/attempts.h"

/* Asks the supervisor and carries out what it says. */
int attempts_apply(struct controller *c, struct job *j, const struct supervisor_event *e,
                   const char *actor, struct error *err);
/* A change of the attempt's condition. */
void attempts_set_condition(struct controller *c, struct job *j, enum attempt_condition to);
/* Is a tandem-node running, or may be? */
bool attempts_has_process(const struct job *j);
/* What a tandem-node that is gone had not told, as if it came now. */
int attempts_take_over(struct controller *c, struct job *j, const struct replay *r,
                       struct error *err);
/* The launch thread's answers. */
int attempts_on_launched(void *controller, struct mail *m, struct error *err);
/* The next check is due now, and often at first. */
void attempts_check_soon(struct controller *c, struct job *j);
/* Time changes priorities: a pass is due so often while jobs wait. */
#define ATTEMPTS_AGING_MS 60000
/* Commits the intent to run j on devices[num], by rank; the launch goes out behind the commit.
 * Where there is no plan on them the job has FAILED. backfills: see struct sched_decision. */
int attempts_start(struct controller *c, struct job *j, const int32_t *devices, int32_t num,
                   int64_t backfills, bool borrowed, struct error *err);
/* Down the stream. */
void attempts_send(struct controller *c, struct job *j, enum supervisor_send what);

#endif
