/* The simulator's switches, for tests (C): which order of things it takes among those that CUDA
 * allows. Without a call CUSIM_SCHEDULE says it, as THREADS,STREAMS,SEED: "reverse,random,7".
 *
 * What a right program computes doesn't depend on any of this. */
#ifndef TANDEM_KERNELS_CUSIM_CONTROL_H
#define TANDEM_KERNELS_CUSIM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The threads of a block and the blocks of a grid; also when asynchronous copies land: as late as
 * allowed, at once, at a random moment. */
enum cusim_threads { CUSIM_FORWARD, CUSIM_REVERSE, CUSIM_RANDOM };
/* Streams: as soon as possible, not before somebody waits, at random. */
enum cusim_streams { CUSIM_EAGER, CUSIM_LAZY, CUSIM_SHUFFLED };

void cusim_schedule(enum cusim_threads threads, enum cusim_streams streams, uint64_t seed);
/* "reverse,random,7"; -1 if it says anything else. */
int cusim_schedule_text(const char *text);

/* From now on device memory is out of the host's reach but while device work runs: a host that
 * touches it ends with words. Call it before the first allocation; CUSIM_PROTECT=1 does the same.
 */
void cusim_protect(void);

/* What a step must not do, counted since the start. */
struct cusim_counts {
    int64_t launches, allocations, syncs;
    int64_t pageable_copies;  /* copies that were not asynchronous, for want of pinned memory */
    int64_t graphs, replayed; /* launches of graphs, and the pieces of work that these brought */
    int64_t lanes;            /* sets of threads for kernels: with ThreadSanitizer one a stream */
    size_t bytes_now, bytes_peak;
};
struct cusim_counts cusim_counted(void);

/* The next n calls of cublasLtMatmulAlgoGetHeuristic find no algorithm. */
void cusim_no_algorithm(int n);
/* Communicators of this process report `error` (an ncclResult_t) from now on, and what runs in them
 * never ends unless it is aborted; 0 heals them. */
void cusim_nccl_break(int error);
/* From now on a call doesn't return to this process, as one that has to connect to a peer that
 * never comes, until its communicator is revoked or aborted. */
void cusim_nccl_hold(void);
/* How long a collective waits for its peers before the program is ended; else 60 s. */
void cusim_nccl_deadline_ms(int64_t deadline_ms);

#ifdef __cplusplus
}
#endif
#endif
