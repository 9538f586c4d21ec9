/* What a matrix product reads and writes of the program's memory, and its epilogues. */
#include <math.h>
#include <stdlib.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cusim/matmul.h"

namespace cusim
{

static double load(const void *p, cudaDataType_t t, size_t i)
{
    switch (t) {
    case CUDA_R_64F:
        return ((const double *)p)[i];
    case CUDA_R_16BF:
        return (double)__bfloat162float(((const __nv_bfloat16 *)p)[i]);
    case CUDA_R_16F:
        return (double)__half2float(((const __half *)p)[i]);
    default:
        return (double)((const float *)p)[i];
    }
}

static void store(void *p, cudaDataType_t t, size_t i, double x)
{
    switch (t) {
    case CUDA_R_64F:
        ((double *)p)[i] = x;
        break;
    case CUDA_R_16BF:
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16((float)x);
        break;
    case CUDA_R_16F:
        ((__half *)p)[i] = __float2half((float)x);
        break;
    default:
        ((float *)p)[i] = (float)x;
    }
}

/* op(X) as [outer][inner], outer being its columns. */
static double *unpack(const void *p, const struct matrix *l, cublasOperation_t op, size_t first)
{
    bool t = op != CUBLAS_OP_N;
    uint64_t rows = t ? l->cols : l->rows;
    uint64_t cols = t ? l->rows : l->cols;
    double *out = (double *)malloc((rows * cols + 1) * sizeof *out);
    for (uint64_t j = 0; j < cols; j++) {
        for (uint64_t i = 0; i < rows; i++) {
            size_t at = t ? j + i * (size_t)l->ld : i + j * (size_t)l->ld;
            out[j * rows + i] = load(p, l->type, first + at);
        }
    }
    return out;
}

static double gelu(double x)
{
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

static bool has(const struct matmul *x, int bits)
{
    return ((int)x->epilogue & bits) == bits;
}

/* One number of D, row i and column j. */
static double finish(const struct matmul *x, double v, uint64_t i, uint64_t j)
{
    size_t aux = i + j * (size_t)x->aux_ld;
    if (has(x, CUBLASLT_EPILOGUE_BIAS)) {
        v += load(x->bias, x->bias_type, i);
    }
    if (has(x, CUBLASLT_EPILOGUE_DGELU)) {
        return v * gelu_slope(load(x->aux, x->aux_type, aux));
    }
    if (has(x, CUBLASLT_EPILOGUE_GELU_AUX)) {
        store(x->aux, x->aux_type, aux, v);
    }
    if (has(x, CUBLASLT_EPILOGUE_GELU)) {
        return gelu(v);
    }
    return has(x, CUBLASLT_EPILOGUE_RELU) && v < 0 ? 0 : v;
}

/* Gradients of a bias: rows of D, of op(A), or columns of op(B). */
static void sum_bias(const struct matmul *x, const double *a, const double *b, const double *d)
{
    if (has(x, CUBLASLT_EPILOGUE_DGELU_BGRAD) || x->epilogue == CUBLASLT_EPILOGUE_BGRADA) {
        bool of_a = x->epilogue == CUBLASLT_EPILOGUE_BGRADA;
        for (uint64_t i = 0; i < x->m; i++) {
            double sum = 0;
            for (uint64_t j = 0; j < (of_a ? x->k : x->n); j++) {
                sum += of_a ? a[j * x->m + i] : d[j * x->m + i];
            }
            store(x->bias, x->bias_type, i, sum);
        }
    } else if (x->epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        for (uint64_t j = 0; j < x->n; j++) {
            double sum = 0;
            for (uint64_t k = 0; k < x->k; k++) {
                sum += b[j * x->k + k];
            }
            store(x->bias, x->bias_type, j, sum);
        }
    }
}

static void matmul_one(const struct matmul *x, int32_t z)
{
    double *a = unpack(x->a, &x->la, x->trans_a, (size_t)(z * x->la.stride));
    double *b = unpack(x->b, &x->lb, x->trans_b, (size_t)(z * x->lb.stride));
    double *d = (double *)calloc(x->m * x->n + 1, sizeof *d);
    matmul_sum(d, a, b, x->m, x->n, x->k);
    for (uint64_t j = 0; j < x->n; j++) {
        for (uint64_t i = 0; i < x->m; i++) {
            double v = x->alpha * d[j * x->m + i];
            if (x->beta != 0) {
                size_t at = (size_t)(z * x->lc.stride) + i + j * (size_t)x->lc.ld;
                v += x->beta * load(x->c, x->lc.type, at);
            }
            v = finish(x, v, i, j);
            d[j * x->m + i] = v;
            store(x->d, x->ld.type, (size_t)(z * x->ld.stride) + i + j * (size_t)x->ld.ld, v);
        }
    }
    sum_bias(x, a, b, d);
    free(a);
    free(b);
    free(d);
}

void matmul_touch(const struct matmul *x)
{
    /* Who shares a workspace between streams is to be found. */
    for (size_t i = 0; i < x->workspace_bytes; i++) {
        ((unsigned char *)x->workspace)[i] = 0xFF;
    }
    for (int32_t z = 0; z < x->ld.batch; z++) {
        matmul_one(x, z);
    }
}

} // namespace cusim
