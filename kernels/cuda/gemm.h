/* Matrix products by cublasLt. Row-major C is column-major C^T, so A and B change places. What
 * cublasLt can't fuse is done in launches of our own, and so is a product that it has no algorithm
 * for. */
#ifndef TANDEM_KERNELS_CUDA_GEMM_H
#define TANDEM_KERNELS_CUDA_GEMM_H

#include <cublasLt.h>

#include "kernels/kernels.h"

/* What a choice of algorithm depends on; two products that are alike in it share the choice. Plain
 * data without gaps. */
struct gemm_key {
    int64_t m, n, k, lda, ldb, ldc; /* as in struct gemm_args */
    int32_t trans_a, trans_b, t, c_type, epilogue;
    uint32_t room;                                           /* bytes of workspace */
    uint32_t align_a, align_b, align_c, align_d, align_rest; /* bytes; of bias and aux the least */
    uint32_t zero;
};

struct gemm_plan {
    bool has_algorithm;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* of the row-major A and B; C and D are alike */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
};

/* How products were done, for tests and for words. */
struct gemm_counts {
    int64_t searches; /* shapes that an algorithm was looked for */
    int64_t fused;    /* in one call of cublasLt */
    int64_t split;    /* the rest in a launch behind it */
    int64_t plain;    /* without cublasLt */
};

struct gemm_cache;
int gemm_cache_new(struct gemm_cache **out, struct error *err);
void gemm_cache_free(struct gemm_cache *c);
cublasLtHandle_t gemm_cache_handle(const struct gemm_cache *c);
struct gemm_counts *gemm_cache_counts(struct gemm_cache *c);
/* Borrowed until the next call. bias and aux: the first that come, for their alignment. */
int gemm_cache_get(struct gemm_cache *c, const struct gemm_key *key, const void *bias,
                   const void *aux, struct gemm_plan **out, struct error *err);

int cublas_error(struct error *err, cublasStatus_t e, const char *what);
#define CUBLAS_TRY(call, what)                                                                     \
    do {                                                                                           \
        cublasStatus_t cublas_try_status = (call);                                                 \
        if (cublas_try_status != CUBLAS_STATUS_SUCCESS)                                            \
            return cublas_error(err, cublas_try_status, what);                                     \
    } while (0)

int cuda_gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
              struct error *err);

#endif
