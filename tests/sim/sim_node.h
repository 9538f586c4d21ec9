/* A tandem-node with its gang, as the controller meets it: proto/tandem/v1/worker.proto and the
 * process protocol, without processes. It waits for its ticket, attaches, trains steps whose loss
 * is a function of job and step, saves checkpoints, numbers its reports and keeps each until it is
 * acknowledged, counts its lease on a clock of its own, and fails in all the ways that it can. */
#ifndef TANDEM_TESTS_SIM_NODE_H
#define TANDEM_TESTS_SIM_NODE_H

#include "base/error.h"
#include "server/store/rows.h"
#include "tests/sim/sim.h"

enum sim_gang { GANG_NONE, GANG_RUNS, GANG_HANGS, GANG_STOPS, GANG_GONE };

enum sim_down_kind {
    SIM_DOWN_NONE,
    SIM_DOWN_START,
    SIM_DOWN_ACK,
    SIM_DOWN_STOP,
    SIM_DOWN_CANCEL,
    SIM_DOWN_LEASE,
    SIM_DOWN_END, /* of the stream */
};

/* What a WorkerDown says, as far as a sim_node cares. */
struct sim_down {
    enum sim_down_kind kind;
    int64_t number; /* ACK: seq; STOP: step; CANCEL: grace_ms; LEASE: ttl_ms; START: resume step */
    uint64_t devices; /* numbers of sim_cluster.h */
    int64_t total_steps;
    char resume_dir[96];
    enum error_code code;
};

struct sim_node {
    int64_t pid;
    int64_t job;
    int32_t attempt;
    struct sim_job *truth;
    uint8_t token[HASH_BYTES];
    bool alive, has_ticket;
    bool killed;
    int64_t stuck_until_us; /* no signal has an effect before */
    /* The gang. */
    enum sim_gang gang;
    int64_t gang_id;  /* counts what may happen to it next: older events are void */
    uint64_t devices; /* of its gang */
    uint64_t given;   /* to its attempt, by the controller */
    int64_t step, total_steps, step_us;
    int64_t stop_at; /* -1 = not asked for */
    bool finished, paused, cancelled, retryable;
    bool stubborn; /* doesn't stop when it is told to */
    bool ended, abandoned;
    char message[96];
    /* Reports. */
    WorkerUp **reports; /* owned; those from acked + 1 on */
    size_t num_reports, cap_reports;
    int64_t last_seq, acked;
    int64_t lost_from; /* not in its journal; 0 = all are */
    /* The stream. */
    struct sim_stream *stream; /* NULL = none */
    bool is_started;           /* Start was heard */
    bool greeted;
    int64_t heard_us; /* since when the controller is known to have heard the hello; 0 = it isn't */
    int64_t backoff_us;
    /* Its clock. */
    double rate;
    int64_t lease_until_us; /* by that clock */
};

/* A process without a ticket yet. */
struct sim_node *sim_node_new(struct sim *s, int64_t job, int32_t attempt);
void sim_node_free_all(struct sim *s);
/* NULL: no such process. */
struct sim_node *sim_node_find(struct sim *s, int64_t pid);
void sim_node_ticket(struct sim *s, int64_t pid, const LaunchTicket *ticket);
void sim_node_end_of_ticket(struct sim *s, int64_t pid);
/* It has ranks, dead or alive, that the kernel knows. */
bool sim_node_holds(const struct sim_node *n);
/* The host goes down: all processes are gone, and the last reports may not be on its disk. */
void sim_node_reboot(struct sim *s);
/* KILL for tandem-node. all: for its ranks, too; without, they see that it is gone and leave. */
void sim_node_kill(struct sim *s, int64_t pid, bool all);
void sim_node_read_down(const WorkerDown *m, struct sim_down *out);
void sim_node_hear(struct sim *s, struct sim_node *n, const struct sim_down *down);
void sim_node_stream_ended(struct sim *s, struct sim_node *n, enum error_code code,
                           const char *text);
/* A failure of the gang. */
void sim_node_fail_rank(struct sim *s, struct sim_node *n, bool retryable, const char *message);
void sim_node_hang(struct sim *s, struct sim_node *n);
/* The launch failed, which costs the job a restart. */
void sim_node_count_failure(struct sim *s, int64_t job);
/* All that it has saved is known to the controller. */
void sim_node_tell(const struct sim_node *n);
/* COMPLETE and DAMAGED in the folders of checkpoints. */
bool sim_node_file_exists(struct sim *s, const char *path);
double sim_node_loss(const struct sim_job *j, int64_t step);

#endif
