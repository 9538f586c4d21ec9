/* The block that runs: its threads, its warps, who is ready. block.cc keeps it moving; warp.cc and
 * copy.cc are what its threads may wait for. */
#ifndef TANDEM_KERNELS_CUSIM_BLOCK_STATE_H
#define TANDEM_KERNELS_CUSIM_BLOCK_STATE_H

#include "kernels/cusim/block.h"
#include "kernels/cusim/engine.h"
#include "kernels/cusim/lanes.h"

namespace cusim
{

#define MAX_WARPS (MAX_THREADS / WARP_SIZE)
#define MAX_MASKS 8

struct thread {
    uint3 tid;
    int lane, warp;
    struct fiber *fiber; /* NULL: not begun */
    bool done;
    const char *file; /* where it waits */
    int line;
    unsigned mask; /* of the lanes that it waits for, 0: the block */
    int copy_group;
    int first_copy; /* of those in flight, -1: none */
};

/* A meeting of the lanes of one mask. Two tables: who is quick writes into one while the slow still
 * read the other. */
struct meeting {
    unsigned mask, arrived;
    enum warp_op op;
    const char *file;
    int line;
    int turn;
    unsigned unread[2];
    void *token[2];
    alignas(16) unsigned char table[2][WARP_SIZE][WARP_SLOT_BYTES];
};

struct warp {
    unsigned exist, done;
    struct meeting meetings[MAX_MASKS];
};

struct block {
    const struct launch *launch;
    struct lanes *lanes;
    uint64_t turn; /* blocks of the grid that ran before */
    int num_threads, num_done;
    struct thread threads[MAX_THREADS];
    struct warp warps[MAX_WARPS];
    int current;
    struct fiber *fiber; /* that runs */
    struct fiber caller; /* who ran the grid */
    void *begin_token, *end_token;
    /* Threads that can run, a ring. */
    int ready[MAX_THREADS], first_ready, num_ready;
    /* __syncthreads */
    int num_arrived, num_nonzero, last_nonzero;
    const char *barrier_file;
    int barrier_line;
    void *barrier_token;
};
extern struct block block;

/* The current thread waits until somebody has made it ready. */
void block_wait(const char *file, int line);
/* Makes the threads of `mask` from `first` on ready, in the schedule's order. */
void block_wake(int first, int num, unsigned mask);
/* Some of the current thread's copies land: at any moment that it waits. */
void copies_drift();
void copies_reset();
void copies_check_none();

} // namespace cusim

#endif
