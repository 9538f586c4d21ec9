/* Row-major matrix product of one thread in `real`: the only door to the BLAS library. */
#ifndef TANDEM_KERNELS_CPU_LOOPS_BLAS_H
#define TANDEM_KERNELS_CPU_LOOPS_BLAS_H

#include <cblas.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/host/variant/real.h"

static inline void blas_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                             real alpha, const real *a, int64_t lda, const real *b, int64_t ldb,
                             real beta, real *c, int64_t ldc)
{
    CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE tb = trans_b ? CblasTrans : CblasNoTrans;
#if REAL_IS_F64
    cblas_dgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, alpha, a, (blasint)lda,
                b, (blasint)ldb, beta, c, (blasint)ldc);
#else
    cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, alpha, a, (blasint)lda,
                b, (blasint)ldb, beta, c, (blasint)ldc);
#endif
}

#endif
