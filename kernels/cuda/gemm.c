#include "kernels/cuda/gemm.h"

#include <string.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm_plain.h"
#include "kernels/cuda/launch.h"

/* cublasLt's assumption where it isn't told; more is of no use to it. */
#define MAX_ALIGN 256u
/* What epilogues want of the matrix that they write or read beside D, and of a bias. */
#define EPILOGUE_ALIGN 16u
#define AUX_LD_MULTIPLE 8

/* What cublasLt is asked to do in one call. */
struct call {
    cublasLtEpilogue_t epilogue;
    const void *bias;
    const void *aux; /* written or read */
    const void *c;   /* read where beta isn't 0 */
    void *d;
};

static uint32_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p;
    uint32_t lowest = (uint32_t)(at & (~at + 1)) & (2 * MAX_ALIGN - 1);
    return lowest == 0 || lowest > MAX_ALIGN ? MAX_ALIGN : lowest;
}

static const void *addend(const struct gemm_args *a)
{
    return a->c0 ? a->c0 : a->c;
}

/* All of it in one call, where an epilogue for it exists and everything lies as it wants it. */
static bool fuse(enum dtype t, const struct gemm_args *a, struct call *out)
{
    const void *aux = a->gelu ? a->c : a->gelu_of;
    bool in_place = a->beta != 0 && addend(a) == a->c;
    *out =
        (struct call){CUBLASLT_EPILOGUE_DEFAULT, a->bias, aux, addend(a), a->gelu ? a->gelu : a->c};
    if (!a->bias && !aux) {
        return true;
    }
    /* With gelu C is aux, which can't be what is added, too. */
    if (a->c_type != t || (a->bias && a->gelu_of) || (a->gelu && in_place) ||
        (a->bias && alignment(a->bias) < EPILOGUE_ALIGN) || alignment(out->d) < EPILOGUE_ALIGN ||
        (aux && (alignment(aux) < EPILOGUE_ALIGN || a->ldc % AUX_LD_MULTIPLE != 0))) {
        return false;
    }
    out->epilogue = a->gelu ? a->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX
                    : a->gelu_of ? CUBLASLT_EPILOGUE_DGELU
                                 : CUBLASLT_EPILOGUE_BIAS;
    return true;
}

static struct gemm_key key_of(enum dtype t, const struct gemm_args *a, const struct call *c,
                              const struct stream *s)
{
    uint32_t of_bias = alignment(c->bias), of_aux = alignment(c->aux);
    return (struct gemm_key){
        .m = a->m,
        .n = a->n,
        .k = a->k,
        .lda = a->lda,
        .ldb = a->ldb,
        .ldc = a->ldc,
        .trans_a = a->trans_a,
        .trans_b = a->trans_b,
        .t = (int32_t)t,
        .c_type = (int32_t)a->c_type,
        .epilogue = (int32_t)c->epilogue,
        .room = s->workspace ? (uint32_t)CUDA_GEMM_WORKSPACE : 0,
        .align_a = alignment(a->a),
        .align_b = alignment(a->b),
        .align_c = a->beta != 0 ? alignment(c->c) : alignment(c->d),
        .align_d = alignment(c->d),
        .align_rest = of_bias < of_aux ? of_bias : of_aux,
    };
}

/* The description is that of the shape; where bias and aux lie is the call's. */
static int point_to(cublasLtMatmulDesc_t desc, const struct call *c, struct error *err)
{
    if (c->bias) {
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &c->bias,
                                                  sizeof c->bias),
                   "bias");
    }
    if (c->aux) {
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                  &c->aux, sizeof c->aux),
                   "aux");
    }
    return 0;
}

/* *done is false where cublasLt doesn't do it, and then nothing has happened. */
static int multiply(struct stream *s, enum dtype t, const struct gemm_args *a, const struct call *c,
                    bool *done, struct error *err)
{
    struct gemm_cache *cache = s->dev->gemm;
    struct gemm_key key = key_of(t, a, c, s);
    struct gemm_plan *p;
    *done = false;
    if (gemm_cache_get(cache, &key, c->bias, c->aux, &p, err) != 0) {
        return -1;
    }
    if (!p->has_algorithm) {
        return 0;
    }
    if (point_to(p->desc, c, err) != 0) {
        return -1;
    }
    float alpha = (float)a->alpha, beta = (float)a->beta;
    cublasStatus_t e = cublasLtMatmul(gemm_cache_handle(cache), p->desc, &alpha, a->b, p->b, a->a,
                                      p->a, &beta, a->beta != 0 ? c->c : c->d, p->c, c->d, p->c,
                                      &p->algo, s->workspace, p->workspace, s->cuda);
    if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE) {
        p->has_algorithm = false; /* what was found isn't one after all */
        return 0;
    }
    CUBLAS_TRY(e, "cublasLtMatmul");
    *done = true;
    return 0;
}

/* The product and what is added to it; all else behind it. */
static int multiply_then_finish(struct stream *s, enum dtype t, const struct gemm_args *a,
                                struct error *err)
{
    struct gemm_counts *counts = gemm_cache_counts(s->dev->gemm);
    struct call c = {CUBLASLT_EPILOGUE_DEFAULT, NULL, NULL, addend(a), a->c};
    bool done = false;
    if (a->k > 0 && multiply(s, t, a, &c, &done, err) != 0) {
        return -1;
    }
    if (!done) {
        CUDA_TRY(cuda_gemm_plain(s->cuda, t, a), "gemm");
    }
    counts->split += done;
    counts->plain += !done;
    if (a->bias || a->gelu || a->gelu_of) {
        struct cuda_epilogue_args rest = {.m = a->m,
                                          .n = a->n,
                                          .ldc = a->ldc,
                                          .c = a->c,
                                          .c_type = a->c_type,
                                          .bias = a->bias,
                                          .gelu = a->gelu,
                                          .gelu_of = a->gelu_of};
        CUDA_TRY(cuda_epilogue(s->cuda, t, &rest), "gemm");
    }
    return 0;
}

static void check(const struct gemm_args *a)
{
    ASSERT(a->m >= 0 && a->n >= 0 && a->k >= 0);
    ASSERT(a->m <= INT32_MAX && a->n <= INT32_MAX && a->k <= INT32_MAX);
    ASSERT(a->lda >= (a->trans_a ? a->m : a->k) && a->lda <= INT32_MAX);
    ASSERT(a->ldb >= (a->trans_b ? a->k : a->n) && a->ldb <= INT32_MAX);
    ASSERT(a->ldc >= a->n && a->ldc <= INT32_MAX);
    ASSERT(!(a->gelu && a->gelu_of));
}

int cuda_gemm(struct device *dev, struct stream *s, enum dtype t, const struct gemm_args *a,
              struct error *err)
{
    if ((t != DTYPE_F32 && t != DTYPE_BF16) || (a->c_type != t && a->c_type != dtype_wide(t))) {
        return error_set(err, ERR_UNIMPLEMENTED, "gemm: backend cuda has no types %d and %d",
                         (int)t, (int)a->c_type);
    }
    check(a);
    if (a->m == 0 || a->n == 0) {
        return 0;
    }
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    struct call c;
    bool done = false;
    if (a->k > 0 && fuse(t, a, &c) && multiply(s, t, a, &c, &done, err) != 0) {
        return -1;
    }
    if (done) {
        gemm_cache_counts(s->dev->gemm)->fused++;
        return 0;
    }
    return multiply_then_finish(s, t, a, err);
}
