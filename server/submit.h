/* Taking a job in: idempotency key, spec_check, probe, plan on the empty cluster, commit, reply. */
#ifndef TANDEM_SERVER_SUBMIT_H
#define TANDEM_SERVER_SUBMIT_H

#include "server/controller.h"

#define IDEMPOTENCY_KEY_MAX 128

/* Mail with a SubmitRequest, on the owner thread. */
int submit_on_request(void *controller, struct mail *m, struct error *err);
/* Whether one more job of the tenant may wait, or be there at all. */
int submit_check_queue(struct controller *c, const char *tenant, struct error *err);
/* Mail with a PlanRequest, on the owner thread: the same without the commit. */
int submit_on_plan(void *controller, struct mail *m, struct error *err);

#endif
