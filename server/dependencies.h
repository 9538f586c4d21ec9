/* Jobs that wait for others (JobSpec.after): all of these must have succeeded. One that failed or
 * was cancelled fails the one that waits; one that is resumed, paused or held makes it wait on. */
#ifndef TANDEM_SERVER_DEPENDENCIES_H
#define TANDEM_SERVER_DEPENDENCIES_H

#include "server/controller.h"

enum dependency_state {
    DEPENDENCY_MET,
    DEPENDENCY_WAITS,
    DEPENDENCY_FAILED,
};

struct dependency {
    enum dependency_state state;
    int64_t id; /* the one that is not met; of the tenant of who waits */
    char words[128];
};

/* The first of those of j that has not succeeded, if there is one. */
int dependencies_look(struct controller *c, struct job *j, struct dependency *out,
                      struct error *err);
/* One of them that failed or was cancelled. They are gone through only when some job has ended that
 * way since: a queue may be long, and each may wait for many. */
int dependencies_failed(struct controller *c, struct job *j, struct dependency *out,
                        struct error *err);

/* Those of a new job: there, of its tenant, each once, and not failed already. Others' jobs are
 * jobs that never were. */
int dependencies_check(struct controller *c, const JobSpec *spec, struct error *err);

#endif
