/* The users of the simulation, and what is true of each job: what they asked for, what they were
 * told, what its gangs did. A user repeats a request until it is answered, one at a time for each
 * job. */
#ifndef TANDEM_TESTS_SIM_CLIENT_H
#define TANDEM_TESTS_SIM_CLIENT_H

#include "tests/sim/sim_admin.h"

#define SIM_CHECKPOINTS_MAX 64
#define SIM_BACKOFF_MAX_MS 8000

enum sim_op {
    OP_SUBMIT,
    OP_CANCEL,
    OP_PAUSE,
    OP_RESUME,
    OP_HOLD,
    OP_RELEASE,
    OP_PRIORITY,
    OP_WHY,
    OP_NUM
};

struct sim_checkpoint {
    char dir[96];
    int64_t step;
    int32_t attempt;
    int64_t seq;  /* of the report of it */
    bool is_told; /* the controller has acknowledged that */
    bool rotten;  /* nobody has noticed yet */
    bool damaged; /* a rank has */
};

/* What the controller has given one attempt, and when: by the clock of the simulation. */
struct sim_held {
    int32_t number;
    uint64_t devices;
    int64_t taken_us, freed_us; /* freed: 0 = not yet */
    int64_t before_us;          /* so much earlier it may have been taken */
    int64_t jumps_us;           /* of the clock on the wall, before it */
    int64_t version;            /* of the cluster file */
    int64_t yields_to;
    int64_t taken_by, freed_by; /* generation of the controller */
    bool known;                 /* since when, exactly */
};

struct sim_job {
    int32_t idx;
    char name[16]; /* its idempotency key, too */
    JobSpec *spec; /* owned */
    int64_t interval, total_steps;
    int32_t num_ranks, max_restarts;
    int32_t tenant, pin;      /* pin: a node; -1 = none */
    struct sim_job *after[2]; /* these must have succeeded */
    int32_t num_after;
    int64_t limit_s; /* 0 = none */
    bool too_large, held_new;
    /* What the users know. */
    int64_t id;      /* 0 = the submit is not acknowledged */
    int64_t real_id; /* in truth; 0 = none yet */
    bool busy;       /* a request is on its way */
    bool is_refused; /* the last submit was */
    /* Promises: acknowledged, and nothing was asked since that would undo it. */
    bool is_cancelled, is_paused, is_held;
    int64_t paused_us;     /* since when is_paused */
    int32_t open[OP_NUM];  /* requests that the controller may still carry out */
    int64_t num_resumes;   /* ever sent */
    bool may_be_cancelled; /* a cancel was ever sent */
    /* What the controller has said. */
    JobState state; /* by its events; 0 = none yet */
    int32_t attempt;
    int64_t backoff_until_ms; /* by the controller's clock, in backoff_generation */
    int64_t backoff_generation;
    struct sim_held *held; /* owned */
    int32_t num_held, cap_held;
    uint64_t claim;
    int32_t evictions; /* by its events */
    int64_t stops_us;  /* it stops for another job, a drain or its limit since then; 0 = no */
    int32_t restarts;  /* by its row */
    int64_t queued_us;
    /* What happened. */
    struct sim_checkpoint checkpoints[SIM_CHECKPOINTS_MAX];
    int32_t num_checkpoints;
    int32_t num_failures;
    bool failed_for_good;
    bool is_rotten;    /* its stored spec is damaged */
    bool has_finished; /* a gang of it reached the last step */
    bool result_acked; /* a gang's end at the last step is known to the controller */
    int32_t last_gang; /* attempt */
};

void sim_client_new(struct sim *s);
void sim_client_free(struct sim *s);
/* NULL: it had none of that number. */
struct sim_held *sim_client_held(const struct sim_job *j, int32_t number);
/* By the controller's id, which its first event tells. Never NULL. */
struct sim_job *sim_client_job(struct sim *s, int64_t id);
struct sim_job *sim_client_job_named(struct sim *s, const char *name);
/* A user does something. */
void sim_client_act(struct sim *s);
/* The faults are over: paused jobs are resumed, held ones released. */
void sim_client_settle(struct sim *s);
/* It has ended, or could never run. */
bool sim_client_is_over(const struct sim_job *j);
/* Every submit is acknowledged, and nobody waits for an answer. */
bool sim_client_is_done(const struct sim *s);
/* sim_spec.c */
const ProbeReply *sim_client_facts(void);
JobSpec *sim_client_spec(const struct sim *s, const struct sim_job *j);

#endif
