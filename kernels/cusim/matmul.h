/* One call of cublasLtMatmul, all of it plain data. Column-major, as cuBLAS has it. */
#ifndef TANDEM_KERNELS_CUSIM_MATMUL_H
#define TANDEM_KERNELS_CUSIM_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include <cublasLt.h>

namespace cusim
{

struct matrix {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch;
    int64_t stride;
};

/* D [m,n] = epilogue(alpha * op(A) [m,k] * op(B) [k,n] + beta * C). */
struct matmul {
    uint64_t m, n, k;
    cublasOperation_t trans_a, trans_b;
    struct matrix la, lb, lc, ld;
    const void *a, *b, *c;
    void *d;
    double alpha, beta;
    cublasLtEpilogue_t epilogue;
    void *bias; /* read, or written by a gradient */
    cudaDataType_t bias_type;
    void *aux; /* what goes into GELU: written forward, read backward */
    int64_t aux_ld;
    cudaDataType_t aux_type;
    void *workspace;
    size_t workspace_bytes;
};

/* The sum over k alone, of memory that is the simulator's: c [n][m] += a [k][m] * b [n][k]. */
void matmul_sum(double *c, const double *a, const double *b, uint64_t m, uint64_t n, uint64_t k);
/* All of it, on the program's memory. */
void matmul_touch(const struct matmul *x);

} // namespace cusim

#endif
