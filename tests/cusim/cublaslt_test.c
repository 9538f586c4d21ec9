/* The fake cublasLt against plain loops: transposes, types, strides, epilogues; and that it refuses
 * what it doesn't know. */
#include "tests/cusim/side.h"

#include <math.h>
#include <stdbool.h>

#include <cublasLt.h>

#define OK(call) assert_int_equal((call), CUBLAS_STATUS_SUCCESS)

/* A matrix in host memory as double, column-major, and on the device in its type. */
struct side {
    cudaDataType_t type;
    int rows, cols, ld;
    double *host;
    void *device;
    cublasLtMatrixLayout_t layout;
};

static size_t bytes_of(cudaDataType_t t)
{
    return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2;
}

static void encode(void *to, cudaDataType_t t, int i, double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (t == CUDA_R_64F) {
        ((double *)to)[i] = x;
    } else if (t == CUDA_R_32F) {
        ((float *)to)[i] = f;
    } else {
        ((uint16_t *)to)[i] = (uint16_t)((bits + 0x8000) >> 16);
    }
}

static double decode(const void *from, cudaDataType_t t, int i)
{
    uint32_t bits = t == CUDA_R_16BF ? (uint32_t)((const uint16_t *)from)[i] << 16 : 0;
    float f;
    memcpy(&f, &bits, sizeof f);
    return t == CUDA_R_64F   ? ((const double *)from)[i]
           : t == CUDA_R_32F ? (double)((const float *)from)[i]
                             : (double)f;
}

/* Eighths between -2 and 2: exact in every type. */
static struct side side_new(cudaStream_t s, cudaDataType_t t, int rows, int cols, int pad, int seed)
{
    struct side x = {t, rows, cols, rows + pad, NULL, NULL, NULL};
    int n = x.ld * cols;
    void *raw = malloc((size_t)n * bytes_of(t));
    x.host = malloc((size_t)n * sizeof *x.host);
    for (int i = 0; i < n; i++) {
        x.host[i] = (double)((i * 7 + seed * 13) % 33 - 16) / 8;
        encode(raw, t, i, x.host[i]);
    }
    x.device = side_put(s, raw, (size_t)n * bytes_of(t));
    free(raw);
    OK(cublasLtMatrixLayoutCreate(&x.layout, t, (uint64_t)rows, (uint64_t)cols, x.ld));
    return x;
}

static void side_drop(struct side *x)
{
    free(x->host);
    side_free(x->device, 0);
    OK(cublasLtMatrixLayoutDestroy(x->layout));
}

static void expect_side(cudaStream_t s, const struct side *x)
{
    int n = x->ld * x->cols;
    void *raw = malloc((size_t)n * bytes_of(x->type));
    side_get(s, raw, x->device, (size_t)n * bytes_of(x->type));
    for (int i = 0; i < n; i++) {
        double got = decode(raw, x->type, i);
        double unit = fmax(1, fabs(x->host[i]));
        double allowed = x->type == CUDA_R_16BF ? 0x1p-8 : 0x1p-20;
        if (!(fabs(got - x->host[i]) <= allowed * unit)) {
            fail_msg("[%d]: want %g, got %g", i, x->host[i], got);
        }
    }
    free(raw);
}

struct problem {
    int m, n, k;
    int trans_a, trans_b;
    cudaDataType_t in, out;
    double alpha, beta;
    cublasLtEpilogue_t epilogue;
};

static double element(const struct side *x, int trans, int row, int col)
{
    return trans ? x->host[col + row * x->ld] : x->host[row + col * x->ld];
}

static double gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

/* What D, bias and aux have to be afterwards, into their host numbers. */
static void work_out(const struct problem *p, const struct side *a, const struct side *b,
                     const struct side *c, struct side *d, struct side *bias, struct side *aux)
{
    cublasLtEpilogue_t e = p->epilogue;
    bool gradient = e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD;
    for (int i = 0; i < p->m; i++) {
        double row_sum = 0;
        for (int j = 0; j < p->n; j++) {
            double sum = 0;
            for (int k = 0; k < p->k; k++) {
                sum += element(a, p->trans_a, i, k) * element(b, p->trans_b, k, j);
            }
            double v = p->alpha * sum + p->beta * c->host[i + j * c->ld];
            v += (int)e & CUBLASLT_EPILOGUE_BIAS ? bias->host[i] : 0;
            if (gradient) {
                v *= gelu_slope(aux->host[i + j * aux->ld]);
            } else if ((int)e & 128) {
                aux->host[i + j * aux->ld] = v;
            }
            v = (int)e & CUBLASLT_EPILOGUE_GELU ? gelu(v) : v;
            v = (int)e & CUBLASLT_EPILOGUE_RELU ? fmax(v, 0) : v;
            row_sum += v;
            d->host[i + j * d->ld] = v;
        }
        if (e == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
            bias->host[i] = row_sum;
        }
    }
    for (int i = 0; e == CUBLASLT_EPILOGUE_BGRADA && i < p->m; i++) {
        bias->host[i] = 0;
        for (int k = 0; k < p->k; k++) {
            bias->host[i] += element(a, p->trans_a, i, k);
        }
    }
    for (int j = 0; e == CUBLASLT_EPILOGUE_BGRADB && j < p->n; j++) {
        bias->host[j] = 0;
        for (int k = 0; k < p->k; k++) {
            bias->host[j] += element(b, p->trans_b, k, j);
        }
    }
}

#define SET(desc, attribute, value)                                                                \
    OK(cublasLtMatmulDescSetAttribute(desc, attribute, &(value), sizeof(value)))

static cublasLtMatmulDesc_t describe(const struct problem *p, const struct side *bias,
                                     const struct side *aux)
{
    cublasLtMatmulDesc_t desc;
    cublasOperation_t ta = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t aux_ld = aux->ld;
    bool is_f64 = p->in == CUDA_R_64F;
    OK(cublasLtMatmulDescCreate(&desc, is_f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                is_f64 ? CUDA_R_64F : CUDA_R_32F));
    SET(desc, CUBLASLT_MATMUL_DESC_TRANSA, ta);
    SET(desc, CUBLASLT_MATMUL_DESC_TRANSB, tb);
    SET(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, p->epilogue);
    SET(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias->device);
    SET(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias->type);
    SET(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux->device);
    SET(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
    SET(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, aux->type);
    return desc;
}

static void check(const struct problem *p)
{
    cudaStream_t s = stream_open();
    cublasLtHandle_t lt;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found;
    int num_found;
    uint64_t room = 4096;
    OK(cublasLtCreate(&lt));
    OK(cublasLtMatmulPreferenceCreate(&pref));
    OK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                            sizeof room));
    struct side a = side_new(s, p->in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, 3, 1);
    struct side b = side_new(s, p->in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, 1, 2);
    struct side c = side_new(s, p->out, p->m, p->n, 2, 3);
    struct side d = side_new(s, p->out, p->m, p->n, 0, 4);
    struct side aux = side_new(s, CUDA_R_32F, p->m, p->n, 8 - p->m % 8, 5);
    struct side bias = side_new(s, CUDA_R_32F, p->m > p->n ? p->m : p->n, 1, 0, 6);
    cublasLtMatmulDesc_t desc = describe(p, &bias, &aux);
    void *workspace = side_put(s, NULL, room);
    OK(cublasLtMatmulAlgoGetHeuristic(lt, desc, a.layout, b.layout, c.layout, d.layout, pref, 1,
                                      &found, &num_found));
    assert_int_equal(num_found, 1);
    float alpha = (float)p->alpha, beta = (float)p->beta;
    bool is_f64 = p->in == CUDA_R_64F;
    OK(cublasLtMatmul(lt, desc, is_f64 ? (const void *)&p->alpha : &alpha, a.device, a.layout,
                      b.device, b.layout, is_f64 ? (const void *)&p->beta : &beta, c.device,
                      c.layout, d.device, d.layout, &found.algo, workspace, room, s));
    work_out(p, &a, &b, &c, &d, &bias, &aux);
    expect_side(s, &d);
    expect_side(s, &bias);
    expect_side(s, &aux);
    struct side *all[] = {&a, &b, &c, &d, &aux, &bias};
    for (int i = 0; i < 6; i++) {
        side_drop(all[i]);
    }
    side_free(workspace, 0);
    OK(cublasLtMatmulDescDestroy(desc));
    OK(cublasLtMatmulPreferenceDestroy(pref));
    OK(cublasLtDestroy(lt));
    MUST(cudaStreamDestroy(s));
}

static void products_agree_for_all_transposes_and_types(void **state)
{
    (void)state;
    static const cudaDataType_t types[][2] = {{CUDA_R_32F, CUDA_R_32F},
                                              {CUDA_R_16BF, CUDA_R_16BF},
                                              {CUDA_R_16BF, CUDA_R_32F},
                                              {CUDA_R_64F, CUDA_R_64F}};
    for (int i = 0; i < 16; i++) {
        schedule_take(i % NUM_SCHEDULES);
        struct problem p = {.m = 7,
                            .n = 5,
                            .k = i % 3 ? 11 : 1,
                            .trans_a = i & 1,
                            .trans_b = i >> 1 & 1,
                            .in = types[i / 4][0],
                            .out = types[i / 4][1],
                            .alpha = i % 5 ? 1 : 0.5,
                            .beta = i % 3 == 1 ? 1 : 0,
                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
        check(&p);
    }
}

static void epilogues_agree(void **state)
{
    (void)state;
    static const cublasLtEpilogue_t epilogues[] = {
        CUBLASLT_EPILOGUE_RELU,   CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU_BIAS,
        CUBLASLT_EPILOGUE_GELU,   CUBLASLT_EPILOGUE_GELU_AUX,      CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_DGELU,  CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB,
    };
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++) {
        schedule_take((int)i % NUM_SCHEDULES);
        struct problem p = {.m = 9,
                            .n = 5,
                            .k = 3,
                            .trans_a = i & 1,
                            .trans_b = i >> 1 & 1,
                            .in = CUDA_R_32F,
                            .out = CUDA_R_32F,
                            .alpha = 1,
                            .epilogue = epilogues[i]};
        check(&p);
    }
}

struct asked {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t square, other;
    cublasLtMatmulPreference_t pref;
};

static struct asked asked_open(void)
{
    struct asked x;
    OK(cublasLtCreate(&x.lt));
    OK(cublasLtMatmulDescCreate(&x.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatrixLayoutCreate(&x.square, CUDA_R_32F, 4, 4, 4));
    OK(cublasLtMatrixLayoutCreate(&x.other, CUDA_R_32F, 5, 5, 5));
    OK(cublasLtMatmulPreferenceCreate(&x.pref));
    return x;
}

static void asked_close(struct asked *x)
{
    OK(cublasLtMatmulPreferenceDestroy(x->pref));
    OK(cublasLtMatrixLayoutDestroy(x->other));
    OK(cublasLtMatrixLayoutDestroy(x->square));
    OK(cublasLtMatmulDescDestroy(x->desc));
    OK(cublasLtDestroy(x->lt));
}

static cublasStatus_t ask(struct asked *x, cublasLtMatrixLayout_t b,
                          cublasLtMatmulHeuristicResult_t *found, int *num_found)
{
    return cublasLtMatmulAlgoGetHeuristic(x->lt, x->desc, x->square, b, b, b, x->pref, 1, found,
                                          num_found);
}

/* A caller must live without an algorithm, and use one for what it was asked for. */
static void algorithms_can_be_missing_or_wrong(void **state)
{
    (void)state;
    struct asked x = asked_open();
    cublasLtMatmulHeuristicResult_t found;
    int num_found = -1;
    cusim_no_algorithm(1);
    assert_int_equal(ask(&x, x.square, &found, &num_found), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(num_found, 0);
    assert_int_equal(ask(&x, x.other, &found, &num_found), CUBLAS_STATUS_INVALID_VALUE);
    OK(ask(&x, x.square, &found, &num_found));
    assert_int_equal(num_found, 1);
    float one = 1;
    cudaStream_t s = stream_open();
    void *mem = side_put(s, NULL, 100);
    assert_int_equal(cublasLtMatmul(x.lt, x.desc, &one, mem, x.other, mem, x.other, &one, mem,
                                    x.other, mem, x.other, &found.algo, NULL, 0, s),
                     CUBLAS_STATUS_INVALID_VALUE);
    side_free(mem, 0);
    MUST(cudaStreamDestroy(s));
    asked_close(&x);
}

/* An algorithm is good for memory that lies as the preference says, and that says 256 bytes where
 * nobody says otherwise; what an epilogue reads or writes beside D has rules of its own. */
static void memory_must_lie_as_was_promised(void **state)
{
    (void)state;
    struct asked x = asked_open();
    cublasLtMatmulHeuristicResult_t found;
    int num_found;
    float one = 1;
    cudaStream_t s = stream_open();
    char *mem = side_put(s, NULL, 256);
    for (int promised = 0; promised < 2; promised++) {
        uint32_t align = 16;
        if (promised) {
            OK(cublasLtMatmulPreferenceSetAttribute(
                x.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align));
        }
        OK(ask(&x, x.square, &found, &num_found));
        assert_int_equal(cublasLtMatmul(x.lt, x.desc, &one, mem, x.square, mem + 16, x.square, &one,
                                        mem, x.square, mem, x.square, &found.algo, NULL, 0, s),
                         promised ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
    }
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    SET(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    for (int i = 0; i < 3; i++) {
        int64_t ld = i == 1 ? 12 : 8;
        char *aux = i == 2 ? mem + 4 : mem;
        SET(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
        SET(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
        assert_int_equal(ask(&x, x.square, &found, &num_found),
                         i == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
    }
    MUST(cudaStreamSynchronize(s));
    side_free(mem, 0);
    MUST(cudaStreamDestroy(s));
    asked_close(&x);
}

static void what_is_not_known_is_refused(void **state)
{
    (void)state;
    struct asked x = asked_open();
    int32_t value = 1;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
    cublasLtMatmulHeuristicResult_t found;
    int num_found;
    assert_int_equal(cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &value,
                                                    sizeof value),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_TRANSA, &value, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasLtMatrixLayoutSetAttribute(x.square, CUBLASLT_MATRIX_LAYOUT_ORDER,
                                                      &value, sizeof value),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(cublasLtMatmulPreferenceSetAttribute(x.pref, CUBLASLT_MATMUL_PREF_SEARCH_MODE,
                                                          &value, sizeof value),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    SET(x.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    assert_int_equal(ask(&x, x.square, &found, &num_found), CUBLAS_STATUS_NOT_SUPPORTED);
    asked_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_for_all_transposes_and_types),
        cmocka_unit_test(epilogues_agree),
        cmocka_unit_test(algorithms_can_be_missing_or_wrong),
        cmocka_unit_test(memory_must_lie_as_was_promised),
        cmocka_unit_test(what_is_not_known_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
