/* The owner's own memory, for the files controller*.c. */
#ifndef TANDEM_SERVER_CONTROLLER_PRIVATE_H
#define TANDEM_SERVER_CONTROLLER_PRIVATE_H

#include "base/buf.h"
#include "server/controller.h"
#include "server/outbox.h"

struct controller {
    struct controller_options options; /* store, topology: owned */
    struct mailbox *box;               /* owned */
    struct job **jobs;                 /* owned, by id */
    size_t num_jobs, cap_jobs;
    struct buf active;       /* struct job * */
    struct buf touched;      /* struct job *, in order of their first change in this batch */
    struct tenants *tenants; /* owned */
    struct outbox outbox;
    struct mailbox_node *backlog; /* mail before all other: whose commit failed, or our own */
    int64_t now_ms;
    int64_t retry_ms;         /* the last batch was not committed: not before this; 0 = it was */
    bool schedule;            /* look for jobs to start */
    int64_t bad_ends;         /* jobs that failed or were cancelled, or did so again; from 1 */
    struct sched *sched;      /* owned; what its passes have learned */
    int64_t sched_due_ms;     /* a pass is due without anything having happened */
    int64_t sched_rest_ms;    /* none before this: the last one took long */
    int64_t explain_rest_ms;  /* explanations have used up their part of the time until then */
    int64_t explain_began_ms; /* of the one that is being made */
    int64_t explain_busy_ms;  /* what the thread had had of the processor by then */
};

/* A job from its row, into memory. A spec that can't be read quarantines the job. */
int controller_load(struct controller *c, int64_t id, struct job **out, struct error *err);
/* Puts j into the list of active jobs, or takes it out, as it is now. */
void controller_set_active(struct controller *c, struct job *j);
/* Until when something that took so much of the processor is not to be done again. */
int64_t controller_rest_until(int64_t took_ms, int64_t now_ms);
void controller_remove(struct controller *c, struct job *j);
void controller_free_job(struct job *j);

#endif
