/* The controller as attach tests play it, for a tandem-node that is a process: it takes what comes,
 * counts what came twice, and answers as it is told to. */
#ifndef TANDEM_TESTS_FAULT_ATTACH_BENCH_H
#define TANDEM_TESTS_FAULT_ATTACH_BENCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/names.h"
#include "server/rpc/server.h"

#define MOST_UPS 4096
#define WAIT_MS 240000

/* What the controller has seen, and how it answers. */
struct controller {
    char dir[64], sock[96], target[112];
    struct server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under lock. */
    WorkerUp *ups[MOST_UPS];            /* owned; those with a number, as they came */
    int num_ups, num_hellos, num_again; /* num_again: came a second time */
    int64_t acked_seq;
    bool hello_fresh;
    int64_t hello_acked;
    int num_ids;       /* for communicators; answered, but for those that are lost */
    struct call *call; /* the live stream */
    /* Set before use. */
    int32_t num_ranks;
    bool mute;                /* acknowledge nothing */
    _Atomic int64_t lease_ms; /* may change meanwhile */
    int refuse_after; /* this many hellos are served, the next refused; -1 = all are served */
    int num_ids_lost; /* the stream breaks in place of the first answers to ids */
    int break_after;  /* breaks the stream after so many numbered messages; 0 = never */
    pid_t node;
};

/* A folder, and what the two ranks do. */
void begin(struct controller *t, int32_t num_ranks, const char *word0, const char *word1);
void finish(struct controller *t);
void send_down(struct controller *t, WorkerDown *down);
void send_lease(struct controller *t);
void send_start(struct controller *t);
void send_ack(struct controller *t, int64_t seq);
void controller_serve(struct controller *t);
void controller_leave(struct controller *t);
void node_start(struct controller *t, const char *token);
/* Its exit code; 1000 + a signal. Nothing of it is left then. */
int node_wait(struct controller *t);
void wait_for_ups(struct controller *t, int num_ups, int num_hellos);
void wait_for_log(struct controller *t, const char *name, const char *part);
/* The last message. */
const AttemptEnd *the_end(const struct controller *t);

#endif
