/* Runs of numbers of any length, cut into chunks: a list in a kernel's arguments says of each run
 * how many chunks the runs before it have, and blocks find the run that has theirs. */
#ifndef TANDEM_KERNELS_CUDA_CHUNKS_CUH
#define TANDEM_KERNELS_CUDA_CHUNKS_CUH

#include "kernels/cuda/cu.h"

#define CHUNK 8192

static inline int64_t chunks_of(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

/* The run that has this chunk. A list has num, and first_chunk(i), which grows with i. */
template <class LIST> static __device__ __forceinline__ int chunk_owner(const LIST &list, int chunk)
{
    int low = 0;
    int high = list.num - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (list.first_chunk(middle) <= chunk) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

#endif
