/* Rows as the controller holds them: plain values, so that a copy is a save point. Text is cut to
 * its field. */
#ifndef TANDEM_SERVER_STORE_ROWS_H
#define TANDEM_SERVER_STORE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

#define DEVICES_MAX 1024
#define DEVICE_WORDS (DEVICES_MAX / 64)
#define HASH_BYTES 32

/* Devices of one node, by index. */
struct device_set {
    uint64_t bits[DEVICE_WORDS];
};

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
    char node[65];
    struct device_set devices;
    int64_t start_step;  /* finished steps it goes on from */
    char resume_dir[96]; /* below the job's folder; "" = the model's own weights */
    int64_t acked_seq;
    int64_t pid;
    int64_t start_time;
    char boot_id[48];
    int64_t created_us;
    int64_t ended_us;
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
    char export_dir[96];        /* below the job's folder */
    char quarantine[160];       /* why its spec can't be used; "" = it can */
    struct attempt_row attempt; /* the latest */
};

static inline bool device_set_has(const struct device_set *s, int32_t i)
{
    return i >= 0 && i < DEVICES_MAX && (s->bits[i / 64] >> (i % 64) & 1);
}

static inline void device_set_add(struct device_set *s, int32_t i)
{
    if (i >= 0 && i < DEVICES_MAX) {
        s->bits[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

#endif
