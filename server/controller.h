/* The owner of all state: takes mail in batches, on one thread (server/owner.c). A batch is one
 * transaction with a save point for each mail. What a mail changes in memory is put back if its
 * save point or the commit fails; what it says to others (replies, acknowledgements, launches)
 * goes out after the commit. So nobody hears of what isn't on disk.
 *
 * What lies outside is reached through server/world.h only, so that the whole of it runs under a
 * fake clock, too. Functions below that take a struct controller run on the owner thread, but for
 * mailbox. */
#ifndef TANDEM_SERVER_CONTROLLER_H
#define TANDEM_SERVER_CONTROLLER_H

#include "server/allowed.h"
#include "server/feed.h"
#include "server/held_set.h"
#include "server/job.h"
#include "server/launching.h"
#include "server/mail.h"
#include "server/probing.h"
#include "server/store/store.h"
#include "server/supervisor.h"
#include "server/tenants.h"
#include "server/topology.h"
#include "server/world.h"

/* Jobs in memory: all that have not ended or whose attempt isn't gone. */
#define CONTROLLER_JOBS_MAX 100000

/* As runtime/comm/comm_provider.h has it. */
#define ATTEMPT_COMM_ID_MAX 256

struct job {
    struct job_row row; /* as on disk, or as it will be after this batch */
    JobSpec *spec;      /* owned; NULL = quarantined */
    ProbeReply *facts;  /* owned */
    /* By number in the topology's fabric. Devices that it doesn't have (any more) are in the rows'
     * text only: they hold nothing that exists. */
    struct held_set devices; /* of its attempt, until that is GONE */
    struct held_set claim;   /* kept for it while it waits */
    bool claim_stale;        /* its row names devices that the fabric doesn't have */
    int64_t since_ms;        /* when the state or the attempt's condition last changed */
    int64_t moved_ms;        /* when the state or its target last changed */
    int64_t attempt_ms;      /* when the attempt got its devices */
    int64_t queued_ms;       /* row.queued_us on the clock that never goes back */
    /* Guesses for the scheduler: nothing is put back. */
    int64_t saved_ms; /* when its newest checkpoint came */
    int64_t step_at_ms;
    struct job_pace pace;
    int64_t mem_bytes; /* of a rank; 0 = not known, -1 = not looked at yet */
    int64_t not_before_ms;
    int32_t tenant;     /* index in controller_tenants */
    int64_t began_ms;   /* since then this controller sees its attempt hold devices */
    bool began_before;  /* ... which it did before that, under an earlier one */
    uint64_t after_met; /* bits of spec->after: these have succeeded for good */
    int64_t after_seen; /* none of them has ended otherwise, as of that controller_bad_ends */
    /* The attempt as far as only this process knows it. */
    struct call *worker; /* its stream; a reference; NULL = not attached */
    bool ack_due;
    /* What its ranks' communicators are made from, and of which attempt that is; 0 = none. A
     * secret: it is nowhere but here and on the way. */
    int32_t comm_id_attempt;
    size_t comm_id_len;
    uint8_t comm_id[ATTEMPT_COMM_ID_MAX];
    int32_t device_events_attempt, num_device_events[2]; /* how many came; of faults in [1] */
    bool check_pending, kill_pending;
    bool adopted;           /* launched by an earlier controller, perhaps without its ticket */
    int64_t first_replayed; /* number of the first report that its journal gave; 0 = none did */
    int32_t num_unread;     /* times that its tandem-node's journal could not be read */
    /* Its processes were killed and one is still there: which; "" = no. Its devices are out of use
     * until it is gone. */
    char stuck[200];
    int64_t next_kill_ms;
    int64_t check_due_ms, check_wait_ms;
    bool active; /* in the list of these */
    /* This batch. */
    bool touched, created;
    struct job_row before; /* what to put back */
    int64_t since_before_ms, moved_before_ms, attempt_before_ms, queued_before_ms, began_was_ms;
    int64_t not_before_before_ms, next_kill_before_ms;
    bool began_before_was;
    char stuck_before[200];
};

struct controller;

struct controller_options {
    const char *data_dir; /* absolute */
    const char *bin_dir;
    const char *worker_addr;   /* where tandem-nodes find us */
    struct store *store;       /* owned from now on */
    struct topology *topology; /* owned from now on */
    struct world world;
    int64_t lease_ms;                 /* of attempts; 0 = they are never given up */
    const struct allowed *allowed;    /* NULL = jobs may read everything */
    const struct run_as *run_as;      /* NULL = all processes are tandemd's user's */
    const SchedulerConfig *scheduler; /* NULL = the defaults */
    int32_t tenant_queued_jobs;       /* waiting ones of a tenant at most; 0 = no limit */
};

int controller_new(struct controller **out, const struct controller_options *options,
                   struct error *err);
struct mailbox *controller_mailbox(struct controller *c);
/* Brings all jobs of the database into memory. */
int controller_open(struct controller *c, struct error *err);
/* Takes mail in (a chain; may be NULL), in one batch or more, and does what is due. */
void controller_step(struct controller *c, struct mailbox_node *chain);
/* Milliseconds until controller_step has something to do without mail; -1 = nothing. */
int64_t controller_wait_ms(struct controller *c);
void controller_free(struct controller *c);

/* ---- for the files that handle mail ---- */
struct store *controller_store(struct controller *c);
const struct controller_options *controller_about(const struct controller *c);
struct topology *controller_topology(struct controller *c);
struct tenants *controller_tenants(struct controller *c);
/* The section of the config, or its defaults. */
const SchedulerConfig *controller_scheduler(const struct controller *c);
/* The monotonic clock, read once a batch; the clock on the wall, read now. */
int64_t controller_now_ms(const struct controller *c);
int64_t controller_wall_us(const struct controller *c);
const struct world *controller_world(const struct controller *c);
/* The disk is full: why says so. */
bool controller_no_room(const struct controller *c, char *why, size_t size);
/* Runs mail of its own in the next batch. */
void controller_post(struct controller *c, struct mail *m);

/* Jobs in memory, by id ascending. */
size_t controller_num_jobs(const struct controller *c);
struct job *controller_job_at(struct controller *c, size_t i);
/* Those that time can do something to: with an attempt that isn't gone, or in a backoff. A queue
 * may be long; these are few. A job gets into the list, or out of it, at the end of a batch. */
size_t controller_num_active(const struct controller *c);
struct job *controller_active_at(struct controller *c, size_t i);
/* NULL: not in memory. */
struct job *controller_job(struct controller *c, int64_t id);
/* By number or name; one that has ended is brought back into memory for this batch. */
int controller_find(struct controller *c, const char *ref, const struct caller *who,
                    struct job **out, struct error *err);
/* A new job, stored; it takes spec and facts over, also on failure. */
int controller_add(struct controller *c, struct job_row *row, JobSpec *spec, ProbeReply *facts,
                   struct job **out, struct error *err);
/* Before j->row is changed. */
void controller_touch(struct controller *c, struct job *j);
/* The devices of its attempt; those kept for it. s is taken over; NULL = none. */
void controller_set_devices(struct controller *c, struct job *j, struct device_set *s);
void controller_set_claim(struct controller *c, struct job *j, struct device_set *s);
/* Changes the state by the table of moves, with its event. */
int controller_move(struct controller *c, struct job *j, JobState to, const char *cause,
                    const char *message, const char *actor, struct error *err);
/* Counts jobs that failed or were cancelled: another number, others may have. From 1. */
int64_t controller_bad_ends(const struct controller *c);
/* An event row; watchers see it. */
int controller_event(struct controller *c, struct job *j, const char *kind, const char *actor,
                     int64_t step, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));
Job *controller_message(struct controller *c, const struct job *j, bool with_spec);
/* Who holds which device, and for whom it is kept; arrays of the fabric's num_devices. */
void controller_holders(struct controller *c, int64_t *holders);
void controller_claims(struct controller *c, int64_t *claims);
/* The number of that job as a tenant sees it: -1 = another tenant's. tenant NULL: as it is. */
int64_t controller_shown(struct controller *c, int64_t job_id, const char *tenant);

/* After the commit; each takes message or mail over. */
void controller_reply(struct controller *c, struct call *call, void *message);
void controller_send(struct controller *c, struct call *call, void *message);
void controller_end_stream(struct controller *c, struct call *call, enum error_code code,
                           const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void controller_launch(struct controller *c, struct launch_mail *m);
void controller_feed(struct controller *c, struct feed_mail *m);
/* Writes the ticket to m->ticket_fd and closes it. m lives until the batch ends. */
void controller_ticket(struct controller *c, struct launch_mail *m);
void controller_lease(struct controller *c, struct call *call, bool on);
void controller_probe(struct controller *c, struct probe_mail *m);
/* Runs m, without an owner, on this thread, in the order of what else goes out. */
void controller_then(struct controller *c, struct mail *m);
/* Look for jobs to start at the end of this batch. */
void controller_schedule(struct controller *c);
/* What the scheduler's passes have learned. */
struct sched *controller_sched(struct controller *c);
/* Explaining why jobs wait may take a part of this thread's time, not all of it. False: not now.
 * True: controller_explained is called when it is done. */
bool controller_may_explain(struct controller *c);
void controller_explained(struct controller *c);

#endif
