/* The fibers that run a stream's blocks, and the memory for what its blocks share. */
#ifndef TANDEM_KERNELS_CUSIM_LANES_H
#define TANDEM_KERNELS_CUSIM_LANES_H

#include <stdint.h>

#include "kernels/cusim/fiber.h"

namespace cusim
{

#define MAX_THREADS 1024
/* Blocks one behind the other must not look ordered to ThreadSanitizer: two halves of fibers take
 * turns, and so do the areas of shared memory. */
#define NUM_HALVES 2
#define NUM_AREAS 32

struct lanes {
    struct lanes *next; /* of those that no stream has */
    char token[8];      /* what its last stream did with it */
    int num_fibers;
    struct fiber fibers[NUM_HALVES * MAX_THREADS];
    char *areas;
    /* A block comes after the one that had its area before; two tokens, so that its own threads
     * don't look ordered by that. */
    char area_tokens[NUM_AREAS][2][8];
    /* Fibers that no thread has, not under ThreadSanitizer. */
    int num_idle;
    struct fiber *idle[NUM_HALVES * MAX_THREADS];
};

/* Room for blocks of this many threads, before one begins: nothing is allocated on a fiber. */
void lanes_reserve(struct lanes *l, int num_threads);
/* `block`: how many blocks of the grid ran before. Where it has its shared memory, what its threads
 * acquire and what they release. */
char *lanes_area(struct lanes *l, uint64_t block);
void *lanes_token_before(struct lanes *l, uint64_t block);
void *lanes_token_after(struct lanes *l, uint64_t block);
/* A fiber for thread `t` of `num_threads` of that block. */
struct fiber *lanes_take(struct lanes *l, uint64_t block, int t, int num_threads);
void lanes_give(struct lanes *l, struct fiber *f);

} // namespace cusim

#endif
