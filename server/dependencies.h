/* Jobs that wait for others (JobSpec.after): all of these must have succeeded. One that failed or
 * was cancelled fails the one that waits; one that is resumed, paused or held makes it wait on. */
#ifndef TANDEM_SERVER_DEPENDENCIES_H
#define TANDEM_SERVER_DEPENDENCIES_H

#include "server/controller.h"

enum dependency {
    DEPENDENCY_MET,
    DEPENDENCY_WAITS,
    DEPENDENCY_FAILED,
};

/* How it stands with those of j; words say which one is not met. *out is set on success. */
int dependencies_look(struct controller *c, struct job *j, enum dependency *out, char *words,
                      size_t size, struct error *err);

/* Those of a new job: there, of its tenant, each once, and not failed already. Others' jobs are
 * jobs that never were. */
int dependencies_check(struct controller *c, const JobSpec *spec, struct error *err);

#endif
