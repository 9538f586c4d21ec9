/* A gang and its ranks, as gang*.c know them (private to those). */
#ifndef TANDEM_RUNTIME_NODE_GANG_STATE_H
#define TANDEM_RUNTIME_NODE_GANG_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "proto/names.h"
#include "runtime/comm/comm_host.h"
#include "runtime/link/link.h"
#include "runtime/node/gang.h"

#define GANG_TEXT_MAX 700

struct gang_member {
    int32_t rank;
    char host[64]; /* where the plan has it, for people */
    int pid_fd;    /* readable once the process has ended; -1: not running */
    pid_t pid;     /* 0: not running */
    int fd;        /* our end of the link, non-blocking; -1: closed */
    struct link_decoder *decoder;
    struct buf out; /* not yet taken by the socket */
    int64_t step;
    bool done, paused;      /* it said so */
    bool trains;            /* the phase it said last: nothing that may take its time */
    bool faulted, is_final; /* it said so; is_final: not retryable */
    char fault[GANG_TEXT_MAX];
    int sent_signal;          /* the strongest that we sent; 0 = none */
    int64_t stopped_since_ms; /* 0: it isn't */
    bool gone;
    ExitKind kind;
    int32_t code;
    char why[GANG_TEXT_MAX]; /* once gone */
    int64_t
        log_dropped_to; /* where the log's kept tail began when it was last cut; 0 = it wasn't */
};

/* How often the kernel's OOM killer has struck: on this host, in our cgroup; -1 = nobody says. */
struct gang_oom {
    int64_t host, group;
};

/* How far the ending has come; it only moves on. */
enum gang_phase { GANG_RUNS, GANG_ABORTED, GANG_TERMINATED, GANG_KILLED };

struct gang {
    struct gang_options options; /* strings owned */
    int segment_fd;              /* -1: one rank */
    void *segment;
    size_t segment_bytes;
    struct gang_member *members; /* [num_ranks] */
    int32_t num_running;
    enum gang_phase phase;
    int64_t next_phase_ms; /* when the next one begins */
    int64_t kill_after_ms; /* from TERM to KILL */
    char stop_reason[GANG_TEXT_MAX];
    bool failed;
    int32_t first_failed; /* -1: none of the ranks */
    char failure[GANG_TEXT_MAX];
    struct gang_oom oom_before;
    int64_t next_look_ms; /* for stopped ranks and long logs */
    bool swept;
    /* How far training has come: for gang_stalled.c. */
    int64_t moved_ms; /* the last step, or change of a phase; or when we last didn't listen */
    int64_t num_steps, num_steps_before; /* of this attempt; before it */
    int64_t longest_step_ms;
};

/* The gang can't go on. rank: whose fault it is, -1 = nobody's. The first failure is the cause. */
void gang_fail(struct gang *g, int32_t rank, const char *text);

/* "; the others wait for it in ..." where they do, else "". */
#define GANG_WAITS_MAX (COMM_HOST_CALL_TEXT_MAX + 64)
void gang_waited_for(const struct gang *g, int32_t rank, char *out, size_t size);

/* Fails the gang when one of its ranks has been stopped for too long. */
void gang_look_for_stopped(struct gang *g);
/* ... or runs and gets nowhere. */
void gang_look_for_stalled(struct gang *g);
/* A step is done; a rank says what it is in. */
void gang_stalled_step(struct gang *g);
void gang_stalled_phase(struct gang *g, struct gang_member *m, const char *phase);
/* The letter in /proc/PID/stat; 0 = there is no such process. */
char gang_process_state(pid_t pid);

/* Path of a rank's log. */
void gang_log_path(const struct gang *g, int32_t rank, char *out, size_t size);
/* Frees the disk of what is in the middle of logs that have grown too long: offsets stay. */
void gang_trim_logs(struct gang *g);

/* Gives the socket what it takes of what waits for this rank. */
void gang_flush(struct gang_member *m);
void gang_queue(struct gang_member *m, const RankDown *message);
/* Takes what a rank's socket has, at most so many pieces of it. */
void gang_receive(struct gang *g, struct gang_member *m, int most);

/* What spawning needs to know. */
struct gang_spawn {
    const char *program;
    const char *log_path;
    int64_t job_id;
    int32_t rank;
    int link_fd;           /* the rank's end */
    int segment_fd;        /* -1 = none */
    const struct pin *pin; /* NULL = anywhere */
};

/* Starts a rank in its own process group: link on 3, segment on 4, output in the log. */
int gang_spawn(const struct gang_spawn *s, pid_t *pid, struct error *err);

/* Fills kind, code and why from a wait status. stop_reason: why the gang is being stopped, "" =
 * it isn't. is_cause: by this rank's own fault. oom_before: as it was when the gang started. */
void gang_cause(struct gang_member *m, int status, const char *stop_reason, bool is_cause,
                const struct gang_oom *oom_before);
void gang_oom_read(struct gang_oom *out);
/* The last line of a rank's log. */
void gang_cause_log(const char *log_path, const struct gang_member *m);

#endif
