/* Where attention's threads go in a tile in shared memory: by the kernels' own map. */
#include "kernels/cuda/attention_mma.cuh"
#include "tests/cusim/attention_banks.h"

template <int E> static __global__ void banks_kernel(struct attention_banks *out)
{
    CU_DYN_SHARED(bf16, tile);
    int i = (int)threadIdx.x;
    int lane = i % CU_WARP;
    cu_shared_at base = cu_shared_of(tile);
    for (int k = 0; k < E / 16; k++) {
        out->left[k][i] = (int32_t)(part_at<E>(part_left<E>(tile), k) - base);
        out->across[k][i] = (int32_t)(part_at<E>(part_across<E>(tile), k) - base);
    }
    int copiers = swizzle<E>::copiers;
    out->copy[i] = tile_at<E>(i / copiers, i % copiers) * (int32_t)sizeof(bf16);
    for (int n = 0; n < E / CHUNK; n++) {
        out->sums[n][i] = tile_at<E>(lane / 4, n) * (int32_t)sizeof(bf16) + lane % 4 * 4;
    }
}

template <int E> static cudaError_t launch(cudaStream_t s, struct attention_banks *out)
{
    CU_LAUNCH(banks_kernel<E>, dim3(1), dim3(MMA_THREADS), ATTENTION_TILE * E * sizeof(bf16), s,
              out);
    return cudaGetLastError();
}

extern "C" cudaError_t attention_banks_of(cudaStream_t s, int e, struct attention_banks *out)
{
    return e == 32   ? launch<32>(s, out)
           : e == 64 ? launch<64>(s, out)
           : e == 96 ? launch<96>(s, out)
                     : launch<128>(s, out);
}
