/* Drain and Undrain: devices are taken from the scheduler until someone gives them back, also over
 * restarts. Jobs on them stop at a step boundary, after a checkpoint, and go on elsewhere, unless
 * they may finish. Owner thread. */
#ifndef TANDEM_SERVER_DRAINING_H
#define TANDEM_SERVER_DRAINING_H

#include "server/controller.h"

/* Handlers of a DrainRequest; done twice is done once. The answer is the node as it is then. */
int draining_on_drain(void *controller, struct mail *m, struct error *err);
int draining_on_undrain(void *controller, struct mail *m, struct error *err);

/* A device that reports a fault is drained by the server itself (user "system" in the audit; object
 * of whom: peer "job 7"), its job moves on. One that is drained already stays as it is. reason: one
 * line. */
int draining_by_fault(struct controller *c, int32_t device, int64_t job_id, const char *reason,
                      struct error *err);

/* The cluster as a tenant sees it, as a message that the caller frees; NULL: all of it. node: that
 * one alone; -1 = all. */
ClusterSpec *draining_look(struct controller *c, const char *tenant, int32_t node);

#endif
