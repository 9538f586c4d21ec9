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
/* Down the stream. */
void attempts_send(struct controller *c, struct job *j, enum supervisor_send what);

#endif
