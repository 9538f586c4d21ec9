/* The launch thread: starts, checks and kills tandem-nodes through a launcher. A kill is sent,
 * looked after again and again, and answered when all are gone or its time is up; nothing else
 * waits meanwhile. A check that finds tandem-node gone but something that it started alive becomes
 * such a kill: nothing may outlive it. One that finds tandem-node gone reads what it left unsaid.
 */
#ifndef TANDEM_SERVER_LAUNCHING_H
#define TANDEM_SERVER_LAUNCHING_H

#include "server/launch/launcher.h"
#include "server/mail.h"
#include "server/replay.h"

enum launch_kind { LAUNCH_START, LAUNCH_CHECK, LAUNCH_KILL };

/* A piece of work; comes back to the controller's mailbox with its result. */
struct launch_mail {
    struct mail mail; /* first */
    enum launch_kind kind;
    int64_t job_id;
    int32_t attempt;
    struct launch_handle handle; /* CHECK, KILL: which; START: the result */
    LaunchTicket *ticket;        /* START; owned */
    int ticket_fd;               /* START: the result; -1 = none; owned */
    bool ok;                     /* START: started; CHECK: alive; KILL: gone */
    int64_t acked_seq;           /* CHECK: what the database has of it */
    struct replay replay;        /* CHECK that isn't ok: what more there is; owned */
    bool unread;                 /* CHECK that isn't ok: that can't be read now: error */
    bool stuck;                  /* CHECK, KILL: something was killed and is still there: error */
    struct error error;
    /* Run on the controller's thread. */
    int (*then)(void *controller, struct mail *m, struct error *err);
    /* A kill under way. Launch thread. */
    struct launch_mail *next;
    int64_t give_up_ms, look_ms, wait_ms;
    int num_looks;
};

struct launch_mail *launch_mail_new(enum launch_kind kind, int64_t job_id, int32_t attempt,
                                    int (*then)(void *, struct mail *, struct error *));

struct launching;

/* back: the controller's mailbox. The launcher is owned from now on. data_dir: borrowed. */
int launching_new(struct launching **out, struct launcher *launcher, const char *data_dir,
                  struct mailbox *back, struct error *err);
void launching_post(struct launching *l, struct launch_mail *m);
void launching_free(struct launching *l);

#endif
