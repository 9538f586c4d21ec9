/* The queue, what runs and whose it is, as the scheduler looks at it (server/sched/sched.h): made
 * anew for each pass, from the controller's memory. Its clock is the controller's monotonic one. */
#ifndef TANDEM_SERVER_ATTEMPTS_VIEW_H
#define TANDEM_SERVER_ATTEMPTS_VIEW_H

#include "server/controller.h"
#include "server/sched/sched.h"

/* A run that was stopped, or reached its limit, is gone so long after its grace at the latest. */
#define ATTEMPTS_KILL_MS 2000

struct attempts_view {
    struct sched_view view;
    struct sched_options options;
    struct sched_job *jobs; /* owned, as are the other three */
    struct job **job_of;    /* by index in jobs */
    struct sched_run *runs;
    struct job **run_of;
};

/* tenant: others' jobs are hidden from it; NULL = none are. Freed with attempts_view_free; good
 * until anything that it shows changes. */
int attempts_view_make(struct controller *c, const char *tenant, struct attempts_view *out,
                       struct error *err);
void attempts_view_free(struct attempts_view *v);

/* What a launcher reaches: for a gang of GPUs one node, this host's own where it is in the file. */
void attempts_view_restrict(const struct topology *t, struct place_request *r);

/* Priority as people say it: "high", "620". */
const char *attempts_priority_words(int32_t priority, char out[16]);

#endif
