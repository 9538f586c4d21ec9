/* What submit says about a job beside what its plan does: what will make it wait. */
#ifndef TANDEM_SERVER_SUBMIT_NOTES_H
#define TANDEM_SERVER_SUBMIT_NOTES_H

#include "server/controller.h"

/* Adds to the summary of plan, which was made of asked (checked, with what it leaves open) and
 * facts. Owner thread. */
void submit_notes_add(struct controller *c, const char *tenant, const JobSpec *asked,
                      const ProbeReply *facts, const Plan *plan, PlanSummary *summary);

#endif
