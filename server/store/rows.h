/* Rows as the controller holds them: plain values, so that a copy is a save point. Text is cut to
 * its field. Devices, of which there may be many, are not in them: store_attempt_devices and
 * store_job_claim give their names. */
#ifndef TANDEM_SERVER_STORE_ROWS_H
#define TANDEM_SERVER_STORE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

#define HASH_BYTES 32
/* Of one attempt; 131072 devices reach it after 200 days. Sums are kept in two parts. */
#define ATTEMPT_DEVICE_US_MAX ((int64_t)1 << 61)

/* Where an attempt stands. The numbers are on disk. */
enum attempt_condition {
    ATTEMPT_PLANNED = 1,  /* committed; no process has its ticket yet */
    ATTEMPT_LAUNCHED = 2, /* tandem-node runs (pid, start_time, boot_id are known) */
    ATTEMPT_STARTED = 3,  /* it attached and may train */
    ATTEMPT_ENDED = 4,    /* it said that its ranks are gone */
    ATTEMPT_GONE = 5,     /* tandem-node is gone too: its devices are free */
};

struct attempt_row {
    int32_t number; /* from 1; 0 = none */
    enum attempt_condition condition;
    uint8_t token_sha256[HASH_BYTES];
    char node[65]; /* the host whose tandem-node runs it */
    int32_t num_devices;
    int64_t start_step;  /* finished steps it goes on from */
    char resume_dir[96]; /* below the job's folder; "" = the model's own weights */
    int64_t acked_seq;
    int64_t pid;
    int64_t start_time;
    char boot_id[48];
    int64_t created_us;
    int64_t ended_us;
    int64_t queued_us; /* since when it had waited for its start, as its age counts */
    int64_t wait_us;   /* how long that wait was, without what it ran in between */
    int64_t device_us; /* devices x time from created_us until they were free; 0 until GONE */
    int64_t gone_us;   /* created_us and that time; 0 until GONE */
    int64_t yields_to; /* the job that it was stopped for; 0 = none */
    int64_t backfills; /* the job in front of which it was started, out of its turn; 0 = none */
    bool evicted;      /* it gave its devices to another job */
    bool borrowed;     /* beyond its tenant's quota when it was started */
};

struct job_row {
    int64_t id;
    char name[65];
    char tenant[65];
    char user[65];
    JobState state;
    int32_t target; /* JobState it is stopping for; 0 = none */
    char cause[32];
    char message[512];
    int32_t priority;
    int32_t devices;
    int64_t total_steps;
    int32_t restarts;
    int64_t mark_step; /* farthest step at the last counted restart */
    int64_t step;
    double loss, step_ms, tokens_per_s, mfu; /* NaN = none */
    int64_t not_before_us;                   /* end of a backoff, wall clock */
    int64_t created_us, started_us, ended_us;
    int32_t evictions;    /* times that it gave its devices to another job */
    int64_t queued_us;    /* its age in the queue counts from here; kept by who gave way or died */
    int64_t waits_us;     /* the wait that it is in began; 0 = it doesn't wait */
    int64_t wait_us;      /* sum of the waits that are over */
    char export_dir[96];  /* below the job's folder */
    char quarantine[160]; /* why its spec can't be used; "" = it can */
    struct attempt_row attempt; /* the latest */
};

/* Devices that new jobs don't get. */
struct drain_row {
    char node[65];
    int32_t device; /* -1 = all of the node */
    char reason[256];
    char user[65];
    int64_t time_us;
    bool let_finish;
};

#endif
