/* A simulation: the real controller, scheduler, supervisor and store under a fake clock, launcher,
 * network and disk, with tandem-nodes and users as small state machines. One thread; everything
 * follows from the seed. Events are run in the order of their time, and after each of them the
 * invariants of sim_check.h hold. */
#ifndef TANDEM_TESTS_SIM_H
#define TANDEM_TESTS_SIM_H

#include "proto/names.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_rng.h"
#include "tests/sim/sim_trace.h"

#define SIM_JOBS_MAX 24
#define SIM_HOST_DEVICES 6
#define SIM_DATA_DIR "/sim"

/* Faults as chances a tick (a fifth of a second, on average), but where it says otherwise. */
struct sim_profile {
    const char *name;
    int32_t jobs_min, jobs_max;
    int64_t steps_max;
    int64_t chaos_ms;
    /* The controller. */
    double crash, crash_in_write, stop;
    double reboot; /* of the host, with all that runs on it */
    int64_t down_max_ms;
    /* The disk. sync_us_max: how long. */
    double full, io_errors;
    double rot; /* a chance at each start */
    int64_t sync_us_max;
    /* The network: streams, delays, replies to users (a chance each). late: an old attempt's words
     * come again. */
    double break_stream, late;
    int64_t delay_max_ms;
    double lose_reply, submit_twice;
    /* Gangs and hosts. fatal: a failure that would come again. */
    double rank_crash, rank_fatal, rank_hang, node_kill, damage;
    /* A chance each. */
    double launch_error, stuck, journal_error;
    double clock_jump, clock_drift; /* drift: of each host's clock, at most */
    /* Users. */
    double cancel, pause, hold, priority, resume_ended, why;
    int32_t max_restarts; /* of a job */
    int64_t reset_after_steps;
    /* Chance that a job needs all devices. */
    double wide;
    /* The cluster. Chances: that it has named nodes, that the scheduler's options are drawn; at a
     * start, that the cluster file is another one; at a reboot, that a device is missing. */
    double cluster, queue, recluster, lose_device;
    /* The operator, at a tick. */
    double quotas, drain, undrain;
    int32_t tenants;
    /* Chances of a job: that it waits for others, is held from the start, has a time limit, is
     * bound to a node, could never fit. */
    double after, hold_new, limit, pin, too_large;
    /* Of a gang that is told to stop: that it doesn't, that it dies. */
    double stubborn, dies_stopping;
};

struct sim;
typedef void (*sim_fn)(struct sim *s, void *arg, int64_t n);

struct sim_event {
    int64_t at_us;
    uint64_t order;
    sim_fn run, drop; /* drop: in place of run when the simulation ends first; may be NULL */
    void *arg;
    int64_t n;
};

struct sim_admin;
struct sim_cluster;
struct sim_server;
struct sim_node;
struct sim_stream;
struct sim_job;

/* What a run has been through. */
struct sim_seen {
    int64_t steps, crashes, attempts, finished, faults, end_us;
    int64_t evictions, drained, limited, claims, backfills, dependents, refused;
    uint64_t events, rng; /* the state of chance at the end: of two equal runs, equal */
};

struct sim {
    uint64_t seed;
    const struct sim_profile *profile;
    struct sim_rng rng;
    int64_t now_us;
    struct sim_event *events; /* a heap */
    size_t num_events, cap_events;
    uint64_t order;
    struct sim_disk *disk;
    struct sim_cluster *cluster;
    struct sim_server *server;
    struct sim_admin *admin;
    struct sim_node **nodes; /* all that ever were; pid = 1000 + index */
    size_t num_nodes, cap_nodes;
    struct sim_stream *streams; /* all that ever were */
    struct sim_job *jobs;
    int32_t num_jobs;
    int64_t disk_full_us, disk_bad_us, disk_slow_us; /* until then */
    int64_t disk_well_us;                            /* since then none of these */
    bool calm;                                       /* the faults are over */
    bool failed;
    char why[512];
    struct sim_seen seen;
};

/* Runs one seed. False: an invariant broke; why says which. loud: every event on stderr. */
bool sim_run(uint64_t seed, const struct sim_profile *p, bool loud, char *why, size_t why_size);
bool sim_run_seen(uint64_t seed, const struct sim_profile *p, struct sim_seen *seen, char *why,
                  size_t why_size);
/* Seeds first .. first + num - 1; false at the first that fails, with its trace on stderr.
 * *failed_seed, if any, gets it. */
bool sim_run_seeds(const struct sim_profile *p, uint64_t first, uint64_t num,
                   uint64_t *failed_seed);

/* The simulation that runs. */
struct sim *sim_current(void);
void sim_set_current(struct sim *s);
void sim_at(struct sim *s, int64_t at_us, sim_fn run, sim_fn drop, void *arg, int64_t n);
void sim_after(struct sim *s, int64_t delay_us, sim_fn run, sim_fn drop, void *arg, int64_t n);
/* An invariant broke. The first one counts. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Chance p, never once the faults are over. */
bool sim_strikes(struct sim *s, double p);
/* A delay in the network, in microseconds. */
int64_t sim_net_us(struct sim *s);

/* The profiles that the tests use, by name; the list ends with name NULL. */
extern const struct sim_profile sim_profiles[];
const struct sim_profile *sim_profile(const char *name);
/* With defaults in place of zeros, where zero makes no sense. */
struct sim_profile sim_profile_filled(const struct sim_profile *p);

#endif
