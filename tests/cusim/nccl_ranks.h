/* Ranks of NCCL's communicators on the simulator: processes over a host segment, as in a job, which
 * all run one function. */
#ifndef TANDEM_TESTS_CUSIM_NCCL_RANKS_H
#define TANDEM_TESTS_CUSIM_NCCL_RANKS_H

#include "tests/cusim/side.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/cuda/device.h"
#include "runtime/comm/comm_host.h"
#include "runtime/comm/comm_nccl.h"

#define MAX_RANKS 4
#define LONG_MS 60000
#define ROUNDS_OF_ONE 3 /* that stands then */

struct shared {
    _Atomic int num_rounds[MAX_RANKS];
    _Atomic int num_left;
    _Atomic int64_t later_ns; /* how far the clock of all ranks is ahead */
};

struct rank {
    int32_t rank, num;
    int schedule, fd;
    int64_t deadline_ms;
    bool has_board;
    int32_t stands; /* this rank stops itself behind some rounds; 0 = none does */
    unsigned char id[COMM_ID_MAX];
    struct shared *shared;
    struct comm_host_world *host;
    struct device *dev;
    struct stream *s;
    struct comm_world *world;
    struct comm *all;
    struct error err;
};

/* In a rank nothing of cmocka may run: a failure is an exit. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, (int)r->rank, \
                    #condition, r->err.text);                                                      \
            _exit(9);                                                                              \
        }                                                                                          \
    } while (0)
#define CUDA(call) NEED((call) == cudaSuccess)
#define SYNC() r->dev->ops->stream_sync(r->dev, r->s, &r->err)

typedef void (*rank_fn)(struct rank *r);

/* ---- in a rank ---- */

int rank_open_world(struct rank *r);
/* Ranks first, first + step, ... */
int rank_new_comm(struct rank *r, int32_t first, int32_t step, int32_t num, const char *name,
                  struct comm **out);
/* Device and stream, no world yet. */
void rank_prepare(struct rank *r);
void rank_open(struct rank *r);
/* Whatever happened before, this comes to an end. */
void rank_close(struct rank *r);
void rank_note_round(struct rank *r);
/* Until each of them has noted one. */
void rank_wait_for_others(struct rank *r);

/* ---- in the test ---- */

void ranks_start(struct rank *r, rank_fn fn, pid_t *pids);
/* The ranks of `left_out` (bits) are ended here; all others must have found all well. */
void ranks_end(struct rank *r, const pid_t *pids, unsigned left_out);
/* Until this rank stands, which it notes as a round, and it alone is waited for in this call: the
 * first that it doesn't come to, as the board may be behind and show an earlier one. */
void wait_until_missing(const struct rank *r, void *segment, int32_t missing, uint32_t call_number);
/* The deadline of all that waits has passed: once that is so, until all others have left. */
void deadline_passes(const struct rank *r, const pid_t *pids, int32_t missing,
                     uint32_t call_number);
/* The same where nobody can look on: as all have come to a round, again and again until those have
 * left that are not `left_out`. */
void deadlines_pass(const struct rank *r, const pid_t *pids, unsigned left_out);
void ranks_run_well(int32_t num, int schedule, rank_fn fn);

#endif
