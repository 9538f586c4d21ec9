/* The rank processes of one attempt on this host: started together, ended together. When one fails,
 * the segment is aborted (the others' collectives fail at once, in its name), then they get a short
 * grace, TERM, KILL; at the end no process that any of them left behind is alive.
 *
 * One thread owns it: the one that made it, which must live as long as the process (ranks ask the
 * kernel to die with it). It reaps every child of the process. */
#ifndef TANDEM_RUNTIME_NODE_GANG_H
#define TANDEM_RUNTIME_NODE_GANG_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proto/names.h"

struct gang;
struct pin;

struct gang_options {
    int64_t job_id;
    int32_t attempt;
    int32_t num_ranks;
    int64_t shared_bytes; /* of each rank, in the segment */
    const char *program;  /* tandem-rank */
    const char *job_dir;
    const char *log_dir;    /* rank-R.log goes there */
    int64_t abort_grace_ms; /* after a failure: to leave by themselves; 0 = 500 */
    int64_t term_grace_ms;  /* between TERM and KILL after a failure; 0 = 1500 */
    int64_t stopped_ms;     /* how long a rank may stand stopped by a signal; 0 = 20000 */
    int64_t stalled_ms;     /* how long training may stand still at least; 0 = 30000 */
    const char *host;       /* this one, for people */
    /* Of each rank's log the beginning and the end are kept, when there is half as much again as
     * the end between them; 0 = 1 MiB and 64 MiB. */
    int64_t log_head_bytes, log_tail_bytes;
    /* A rank's message (borrowed). Faults and RankDone are kept by the gang and don't come here. */
    void (*on_up)(void *arg, int32_t rank, const RankUp *up);
    /* A rank is gone (borrowed). Once for each rank that was started or could not be. */
    void (*on_exit)(void *arg, const RankExit *gone);
    /* Another child of this process was reaped. May be NULL. */
    void (*on_other)(void *arg, pid_t pid, int status);
    /* The last rank is gone; what is left below this process is killed next. May be NULL. */
    void (*on_last)(void *arg, bool failed);
    void *arg;
    const struct pin *pins; /* [num_ranks], borrowed until all are started; NULL = none is pinned */
};

/* Strings are copied. */
int gang_new(struct gang **out, const struct gang_options *options, struct error *err);
/* Kills what is left. */
void gang_free(struct gang *g);

/* Makes the segment, starts every rank and hands it its RankStart. A rank that can't be started is
 * a failure of the gang like any other, seen in gang_end. */
void gang_start(struct gang *g, const Start *start);

/* To every rank that runs. */
void gang_send(struct gang *g, const RankDown *message);
/* Ends all: TERM now, KILL after grace_ms. reason goes into logs and exits. */
void gang_stop(struct gang *g, int64_t grace_ms, const char *reason);

/* For the owner's poll: fills fds (room for gang_num_fds), and says how long it may wait (-1 = for
 * ever). listen: read what ranks say; false = let them wait. */
int gang_num_fds(const struct gang *g);
int gang_poll_begin(struct gang *g, struct pollfd *fds, bool listen, int64_t *timeout_ms);
void gang_poll_end(struct gang *g, const struct pollfd *fds, int num);

/* No rank is left, and nothing that they started. */
bool gang_is_gone(const struct gang *g);
/* How it ended; strings live as long as the gang. Valid once it is gone. cancelled isn't set. */
void gang_end(const struct gang *g, AttemptEnd *end);

#endif
