/* What a kernel calls: one call each of what threads of a block do together. cusim.h makes CUDA's
 * names of it. FILE and LINE are the caller's, for the words of a failure. */
#ifndef TANDEM_KERNELS_CUSIM_BLOCK_H
#define TANDEM_KERNELS_CUSIM_BLOCK_H

#include <stddef.h>
#include <stdint.h>

namespace cusim
{

/* An array in shared memory: where it lies in the running block. */
struct shared_slot {
    uint64_t serial;
    void *mem;
};
void *shared_array(struct shared_slot *slot, size_t bytes, size_t align);
void *shared_dynamic();

/* __syncthreads; returns how many threads came with a value other than 0. */
int block_barrier(int value, const char *file, int line);

enum warp_op { WARP_SHUFFLE, WARP_SYNC, WARP_VOTE, WARP_MMA, WARP_LDMATRIX };

#define WARP_SIZE 32
#define WARP_SLOT_BYTES 16
/* All lanes of mask come with up to 16 bytes; each gets what all brought, [32][16], valid until its
 * next call here. */
const unsigned char *warp_exchange(unsigned mask, enum warp_op op, const void *value, int bytes,
                                   const char *file, int line);
/* The lanes that there are: fewer than 32 in the last warp of an odd block. */
unsigned warp_lanes();

/* cp.async: 16 bytes, or zeros where !full, in the group that is open. */
void copy_async(void *dst, const void *src, bool full, const char *file, int line);
void copy_commit();
/* Waits for all groups but the last `num_open`. */
void copy_wait(int num_open);

} // namespace cusim

#endif
