/* cublasLt: the products, epilogues and attributes that docs/architecture.md lists. What isn't
 * known answers NOT_SUPPORTED, so that nobody relies on what was silently left out. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cusim/machine.h"
#include "kernels/cusim/matmul.h"

namespace cusim
{

#define WORKSPACE_BYTES 1024

struct description {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t trans_a, trans_b;
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
    int bias_type, aux_type; /* a cudaDataType_t, -1: D's */
};

/* Alignments: of A, B, C, D, as cublasLt takes them to be where nobody says otherwise. */
struct preference {
    uint64_t workspace_bytes;
    uint32_t align[4], reductions;
};

#define DEFAULT_ALIGN 256u
/* Of what epilogues read and write beside D. */
#define EPILOGUE_ALIGN 16u
#define AUX_LD_MULTIPLE 8
#define EPILOGUE_AUX 128

static int num_without_algorithm;

void matmul_sum(double *c, const double *a, const double *b, uint64_t m, uint64_t n, uint64_t k)
{
    for (uint64_t j = 0; j < n; j++) {
        for (uint64_t l = 0; l < k; l++) {
            double y = b[j * k + l];
            for (uint64_t i = 0; i < m; i++) {
                c[j * m + i] += a[l * m + i] * y;
            }
        }
    }
}

static enum progress run_matmul(const void *args)
{
    matmul_touch((const struct matmul *)args);
    return WORK_DONE;
}

template <class T> static cublasStatus_t take(T *to, const void *from, size_t bytes)
{
    if (!from || bytes != sizeof *to) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy((void *)to, from, sizeof *to);
    return CUBLAS_STATUS_SUCCESS;
}

static bool epilogue_is_known(cublasLtEpilogue_t e)
{
    switch (e) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return true;
    default:
        return false;
    }
}

static size_t size_of(cudaDataType_t t)
{
    return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2;
}

/* bf16 or f16 in, the same or f32 out; f32 or f64 throughout. */
static cublasStatus_t check_types(const struct description *d, const struct matmul *x)
{
    cudaDataType_t in = x->la.type;
    cudaDataType_t out = x->ld.type;
    bool is_half = in == CUDA_R_16BF || in == CUDA_R_16F;
    bool is_f64 = in == CUDA_R_64F;
    bool in_ok = in == x->lb.type && (is_half || is_f64 || in == CUDA_R_32F);
    bool out_ok = out == x->lc.type && (out == in || (is_half && out == CUDA_R_32F));
    bool fast = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    bool compute_ok =
        is_f64 ? d->compute == CUBLAS_COMPUTE_64F && d->scale == CUDA_R_64F
               : (d->compute == CUBLAS_COMPUTE_32F || (fast && !is_half)) && d->scale == CUDA_R_32F;
    bool epilogue_ok =
        epilogue_is_known(d->epilogue) && (!is_f64 || d->epilogue == CUBLASLT_EPILOGUE_DEFAULT);
    return in_ok && out_ok && compute_ok && epilogue_ok ? CUBLAS_STATUS_SUCCESS
                                                        : CUBLAS_STATUS_NOT_SUPPORTED;
}

static bool matrix_fits(const struct matrix *l, uint64_t rows, uint64_t cols, int32_t batch)
{
    return l->rows == rows && l->cols == cols && l->ld >= (int64_t)rows && l->batch == batch;
}

/* Sizes from the layouts; whether it all fits. */
static cublasStatus_t bind(const struct description *d, const void *a, const void *b, const void *c,
                           const void *out, struct matmul *x)
{
    *x = {};
    x->la = *(const struct matrix *)a;
    x->lb = *(const struct matrix *)b;
    x->lc = *(const struct matrix *)c;
    x->ld = *(const struct matrix *)out;
    x->trans_a = d->trans_a;
    x->trans_b = d->trans_b;
    x->m = d->trans_a == CUBLAS_OP_N ? x->la.rows : x->la.cols;
    x->k = d->trans_a == CUBLAS_OP_N ? x->la.cols : x->la.rows;
    x->n = d->trans_b == CUBLAS_OP_N ? x->lb.cols : x->lb.rows;
    uint64_t k = d->trans_b == CUBLAS_OP_N ? x->lb.rows : x->lb.cols;
    int32_t batch = x->ld.batch;
    if (k != x->k || x->m == 0 || x->n == 0 || !matrix_fits(&x->ld, x->m, x->n, batch) ||
        !matrix_fits(&x->lc, x->m, x->n, batch) ||
        !matrix_fits(&x->la, x->la.rows, x->la.cols, batch) ||
        !matrix_fits(&x->lb, x->lb.rows, x->lb.cols, batch)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    x->epilogue = d->epilogue;
    x->bias = d->bias;
    x->aux = d->aux;
    x->aux_ld = d->aux_ld;
    x->bias_type = d->bias_type < 0 ? x->ld.type : (cudaDataType_t)d->bias_type;
    x->aux_type = d->aux_type < 0 ? x->ld.type : (cudaDataType_t)d->aux_type;
    if (((int)x->epilogue & EPILOGUE_AUX) &&
        (x->aux_ld % AUX_LD_MULTIPLE != 0 || (uintptr_t)x->aux % EPILOGUE_ALIGN != 0)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return check_types(d, x);
}

/* What an algorithm was asked for; it does for nothing else. */
static uint64_t signature(const struct matmul *x)
{
    const uint64_t parts[] = {x->m,
                              x->n,
                              x->k,
                              (uint64_t)x->trans_a,
                              (uint64_t)x->trans_b,
                              (uint64_t)x->la.type,
                              (uint64_t)x->ld.type,
                              (uint64_t)x->la.ld,
                              (uint64_t)x->lb.ld,
                              (uint64_t)x->ld.ld,
                              (uint64_t)x->ld.batch,
                              (uint64_t)x->epilogue};
    uint64_t hash = 14695981039346656037u;
    for (uint64_t part : parts) {
        hash = (hash ^ part) * 1099511628211u;
    }
    return hash | 1;
}

static void check_matrix(const void *p, const struct matrix *l, const char *what)
{
    size_t last = (size_t)l->ld * (l->cols - 1) + l->rows;
    size_t bytes = ((size_t)(l->batch - 1) * (size_t)l->stride + last) * size_of(l->type);
    machine_check_range(p, l->cols ? bytes : 0, what);
}

static cublasStatus_t check_memory(const struct matmul *x)
{
    int bits = (int)x->epilogue;
    bool on_columns = x->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    bool has_bias = bits & (CUBLASLT_EPILOGUE_BIAS | 16) || on_columns ||
                    x->epilogue == CUBLASLT_EPILOGUE_BGRADA;
    bool has_aux = bits & EPILOGUE_AUX;
    if ((has_bias && !x->bias) || (has_aux && (!x->aux || x->aux_ld < (int64_t)x->m))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    check_matrix(x->a, &x->la, "cublasLtMatmul's A");
    check_matrix(x->b, &x->lb, "cublasLtMatmul's B");
    check_matrix(x->d, &x->ld, "cublasLtMatmul's D");
    if (x->beta != 0) {
        check_matrix(x->c, &x->lc, "cublasLtMatmul's C");
    }
    if (has_bias) {
        machine_check_range(x->bias, (on_columns ? x->n : x->m) * size_of(x->bias_type),
                            "cublasLtMatmul's bias");
    }
    if (has_aux) {
        struct matrix aux = {x->aux_type, x->m, x->n, x->aux_ld, 1, 0};
        check_matrix(x->aux, &aux, "cublasLtMatmul's aux");
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* An algorithm reads and writes as wide as it was told that it may. */
static bool lies_as_promised(const struct matmul *x, const cublasLtMatmulAlgo_t *algo)
{
    const void *const matrices[] = {x->a, x->b, x->beta != 0 ? x->c : nullptr, x->d};
    for (int i = 0; i < 4; i++) {
        uint64_t align = algo ? algo->data[2] >> 16 * i & 0xFFFF : 1;
        if (align == 0 || (uintptr_t)matrices[i] % align != 0) {
            return false;
        }
    }
    return true;
}

static double number(const void *p, cudaDataType_t t)
{
    return t == CUDA_R_64F ? *(const double *)p : (double)*(const float *)p;
}

} // namespace cusim

using namespace cusim;

void cusim_no_algorithm(int n)
{
    num_without_algorithm = n;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = (cublasLtHandle_t)malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t e)
{
    switch (e) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "unknown";
    }
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct description *d = (struct description *)malloc(sizeof *d);
    *d = {compute, scale,   CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
          nullptr, nullptr, 0,           -1,          -1};
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free((void *)d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t a, const void *value,
                                              size_t bytes)
{
    struct description *d = (struct description *)desc;
    switch (a) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&d->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&d->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&d->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return take(&d->aux_type, value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    struct matrix *l = (struct matrix *)malloc(sizeof *l);
    *l = {type, rows, cols, ld, 1, 0};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free((void *)l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t a,
                                                const void *value, size_t bytes)
{
    struct matrix *l = (struct matrix *)layout;
    switch (a) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return take(&l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return take(&l->stride, value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *p = (struct preference *)calloc(1, sizeof *p);
    for (int i = 0; i < 4; i++) {
        p->align[i] = DEFAULT_ALIGN;
    }
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free((void *)p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *value, size_t bytes)
{
    struct preference *pref = (struct preference *)p;
    switch (a) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&pref->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(&pref->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&pref->align[a - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t p, int num_asked,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *num_found)
{
    struct machine_guard guard;
    struct matmul x;
    *num_found = 0;
    if (num_asked < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    cublasStatus_t rc = bind((const struct description *)d, a, b, c, out, &x);
    if (rc != CUBLAS_STATUS_SUCCESS || num_without_algorithm > 0) {
        num_without_algorithm -= num_without_algorithm > 0;
        return rc == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : rc;
    }
    uint64_t room = ((const struct preference *)p)->workspace_bytes;
    memset((void *)results, 0, sizeof *results);
    results->workspaceSize = room >= WORKSPACE_BYTES ? WORKSPACE_BYTES : 0;
    results->algo.data[0] = signature(&x);
    results->algo.data[1] = results->workspaceSize;
    results->algo.data[2] = 0;
    for (int i = 0; i < 4; i++) {
        results->algo.data[2] |= (uint64_t)((const struct preference *)p)->align[i] << 16 * i;
    }
    results->state = CUBLAS_STATUS_SUCCESS;
    *num_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t s)
{
    struct machine_guard guard;
    const struct description *way = (const struct description *)desc;
    struct matmul x;
    cublasStatus_t rc = bind(way, la, lb, lc, ld, &x);
    if (rc != CUBLAS_STATUS_SUCCESS) {
        return rc;
    }
    if (algo && (algo->data[0] != signature(&x) || workspace_bytes < algo->data[1])) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    x.a = a;
    x.b = b;
    x.c = c;
    x.d = d;
    x.alpha = number(alpha, way->scale);
    x.beta = number(beta, way->scale);
    x.workspace = workspace;
    x.workspace_bytes = algo ? algo->data[1] : 0;
    if (!lies_as_promised(&x, algo)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    machine_check_range(workspace, x.workspace_bytes, "cublasLtMatmul's workspace");
    rc = check_memory(&x);
    if (rc == CUBLAS_STATUS_SUCCESS) {
        machine_enqueue(s, "cublasLtMatmul", run_matmul, &x, sizeof x);
    }
    return rc;
}

} // extern "C"
