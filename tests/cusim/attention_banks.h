/* Bytes from the start of a tile to where each of a block's 128 threads goes. */
#ifndef TANDEM_TESTS_CUSIM_ATTENTION_BANKS_H
#define TANDEM_TESTS_CUSIM_ATTENTION_BANKS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct attention_banks {
    int32_t left[8][128], across[8][128]; /* the row that it names for ldmatrix, of each part */
    int32_t copy[128];                    /* the 16 bytes that it copies there */
    int32_t sums[16][128];                /* the 4 bytes that it stores, of each eight columns */
};

/* out: device memory. Heads of 32, 64, 96, 128. */
cudaError_t attention_banks_of(cudaStream_t s, int e, struct attention_banks *out);

#ifdef __cplusplus
}
#endif
#endif
