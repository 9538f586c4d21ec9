/* Attempts: a job's gang from the choice of its devices to the moment they are free again. Carries
 * out what scheduler and supervisor decide. Owner thread. */
#ifndef TANDEM_SERVER_ATTEMPTS_H
#define TANDEM_SERVER_ATTEMPTS_H

#include "server/controller.h"

/* After a start of the controller: attempts that may still run are looked for; those that can't
 * run are lost. */
int attempts_adopt(struct controller *c, struct error *err);
/* What is due: checks, deadlines, ends of backoffs. */
int attempts_tick(struct controller *c, struct error *err);
/* Milliseconds until attempts_tick has something to do; -1 = nothing. */
int64_t attempts_wait_ms(struct controller *c);
struct attempts_pass {
    bool again;      /* another one is to follow at once */
    int64_t next_ms; /* another one is due then, if nothing happens; INT64_MAX = never */
};
/* One pass of the scheduler, carried out. */
int attempts_schedule(struct controller *c, struct attempts_pass *out, struct error *err);
/* Why a queued job waits, who holds that, and until when. tenant: who asks, and doesn't learn of
 * others' jobs; NULL = all. */
int attempts_why(struct controller *c, struct job *j, const char *tenant, WhyReply *reply,
                 struct error *err);
/* Shows devices as drained that are held by a process which can't be killed. tenant: whose eyes
 * these are; NULL = all may be seen. */
void attempts_show_stuck(struct controller *c, ClusterSpec *cluster, const char *tenant);
/* A user's wish: SUPERVISE_CANCEL ... SUPERVISE_RELEASE; or SUPERVISE_DRAIN: user then says why, as
 * in "gives its 4 devices back: alpha:2 is drained". */
int attempts_request(struct controller *c, struct job *j, enum supervisor_kind kind,
                     const char *user, struct error *err);
/* What was asked of the launch thread was dropped with its batch. */
void attempts_forget_pending(struct controller *c);

/* Mail from the Attach stream: message is a WorkerUp; and its end. */
int attempts_on_up(void *controller, struct mail *m, struct error *err);
int attempts_on_closed(void *controller, struct mail *m, struct error *err);

/* Plans spec on the devices given, by rank; NULL: on an empty cluster, wherever it fits. */
int attempts_plan(struct controller *c, const JobSpec *spec, const ProbeReply *facts,
                  const int32_t *devices, int32_t num_devices, Plan **out, struct error *err);

#endif
