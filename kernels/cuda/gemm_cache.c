/* Algorithms of matrix products, by shape: looked for once, kept with their descriptions. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/gemm.h"

/* A model has some dozens of shapes. Who comes to so many has shapes without end, and starts again.
 */
#define MAX_ENTRIES 1024
#define NUM_SLOTS (2 * MAX_ENTRIES)
#define NUM_ASKED 8

struct entry {
    bool is_used;
    struct gemm_key key;
    struct gemm_plan plan;
};

struct gemm_cache {
    cublasLtHandle_t lt;
    struct gemm_counts counts;
    int num_entries;
    struct entry slots[NUM_SLOTS];
};

int cublas_error(struct error *err, cublasStatus_t e, const char *what)
{
    return error_set(err, ERR_INTERNAL, "gemm: %s: cuBLAS error %d (%s)", what, (int)e,
                     cublasLtGetStatusName(e));
}

int gemm_cache_new(struct gemm_cache **out, struct error *err)
{
    struct gemm_cache *c = calloc(1, sizeof *c);
    if (!c) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "gemm: no memory");
    }
    cublasStatus_t e = cublasLtCreate(&c->lt);
    if (e != CUBLAS_STATUS_SUCCESS) {
        free(c);
        return cublas_error(err, e, "cublasLtCreate");
    }
    *out = c;
    return 0;
}

static void plan_drop(struct gemm_plan *p)
{
    if (p->desc) {
        cublasLtMatmulDescDestroy(p->desc);
    }
    cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) {
            cublasLtMatrixLayoutDestroy(layouts[i]);
        }
    }
    *p = (struct gemm_plan){0};
}

static void clear(struct gemm_cache *c)
{
    for (int i = 0; i < NUM_SLOTS; i++) {
        plan_drop(&c->slots[i].plan);
        c->slots[i].is_used = false;
    }
    c->num_entries = 0;
}

void gemm_cache_free(struct gemm_cache *c)
{
    if (c) {
        clear(c);
        cublasLtDestroy(c->lt);
        free(c);
    }
}

cublasLtHandle_t gemm_cache_handle(const struct gemm_cache *c)
{
    return c->lt;
}

struct gemm_counts *gemm_cache_counts(struct gemm_cache *c)
{
    return &c->counts;
}

/* ---- looking for an algorithm ---- */

static cudaDataType_t type_of(int32_t t)
{
    return t == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

#define SET(desc, attribute, value)                                                                \
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##attribute, &(value),    \
                                              sizeof(value)),                                      \
               #attribute)

/* cublasLt's A is our B, and the other way round. True fp32 in fp32, without TF32. */
static int describe(const struct gemm_key *k, const void *bias, const void *aux,
                    struct gemm_plan *p, struct error *err)
{
    CUBLAS_TRY(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    cublasOperation_t of_a = k->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t of_b = k->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)k->epilogue;
    SET(p->desc, TRANSA, of_a);
    SET(p->desc, TRANSB, of_b);
    SET(p->desc, EPILOGUE, epilogue);
    if (bias) {
        int32_t type = (int32_t)type_of(k->t);
        SET(p->desc, BIAS_POINTER, bias);
        SET(p->desc, BIAS_DATA_TYPE, type);
    }
    if (aux) {
        SET(p->desc, EPILOGUE_AUX_POINTER, aux);
        SET(p->desc, EPILOGUE_AUX_LD, k->ldc);
    }
    uint64_t m = (uint64_t)k->m, n = (uint64_t)k->n, depth = (uint64_t)k->k;
    cudaDataType_t t = type_of(k->t);
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&p->a, t, k->trans_a ? m : depth, k->trans_a ? depth : m,
                                          k->lda),
               "layout");
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&p->b, t, k->trans_b ? depth : n, k->trans_b ? n : depth,
                                          k->ldb),
               "layout");
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&p->c, type_of(k->c_type), n, m, k->ldc), "layout");
    return 0;
}

#define PREFER(pref, attribute, value)                                                             \
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_##attribute,        \
                                                    &(value), sizeof(value)),                      \
               #attribute)

/* Parts of a sum over k meet in fp32 alone, and in an order of their own: the same bits each time.
 */
static int prefer(const struct gemm_key *k, cublasLtMatmulPreference_t pref, struct error *err)
{
    uint64_t room = k->room;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    PREFER(pref, MAX_WORKSPACE_BYTES, room);
    PREFER(pref, REDUCTION_SCHEME_MASK, reductions);
    PREFER(pref, MIN_ALIGNMENT_A_BYTES, k->align_b);
    PREFER(pref, MIN_ALIGNMENT_B_BYTES, k->align_a);
    PREFER(pref, MIN_ALIGNMENT_C_BYTES, k->align_c);
    PREFER(pref, MIN_ALIGNMENT_D_BYTES, k->align_d);
    return 0;
}

/* No algorithm is an answer, too. */
static int ask(struct gemm_cache *c, const struct gemm_key *k, cublasLtMatmulPreference_t pref,
               struct gemm_plan *p, struct error *err)
{
    cublasLtMatmulHeuristicResult_t found[NUM_ASKED];
    int num_found = 0;
    if (prefer(k, pref, err) != 0) {
        return -1;
    }
    cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(c->lt, p->desc, p->b, p->a, p->c, p->c, pref,
                                                      NUM_ASKED, found, &num_found);
    for (int i = 0; e == CUBLAS_STATUS_SUCCESS && i < num_found; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= k->room) {
            p->has_algorithm = true;
            p->algo = found[i].algo;
            p->workspace = found[i].workspaceSize;
            break;
        }
    }
    return 0;
}

static int search(struct gemm_cache *c, const struct gemm_key *k, const void *bias, const void *aux,
                  struct gemm_plan *p, struct error *err)
{
    cublasLtMatmulPreference_t pref;
    c->counts.searches++;
    if (describe(k, bias, aux, p, err) != 0) {
        return -1;
    }
    CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&pref), "preference");
    int rc = ask(c, k, pref, p, err);
    cublasLtMatmulPreferenceDestroy(pref);
    if (rc == 0 && !p->has_algorithm && k->epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
        log_warn("gemm %lldx%lldx%lld: cuBLASLt has no algorithm; done by a slow kernel of our own",
                 (long long)k->m, (long long)k->n, (long long)k->k);
    }
    return rc;
}

/* ---- the table ---- */

static uint64_t hash_of(const struct gemm_key *k)
{
    const unsigned char *bytes = (const unsigned char *)k;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *k; i++) {
        h = (h ^ bytes[i]) * 1099511628211u;
    }
    return h;
}

static struct entry *slot_of(struct gemm_cache *c, const struct gemm_key *k)
{
    uint64_t i = hash_of(k) % NUM_SLOTS;
    while (c->slots[i].is_used && memcmp(&c->slots[i].key, k, sizeof *k) != 0) {
        i = (i + 1) % NUM_SLOTS;
    }
    return &c->slots[i];
}

_Static_assert(sizeof(struct gemm_key) == 6 * 8 + 12 * 4, "a key is compared byte for byte");

int gemm_cache_get(struct gemm_cache *c, const struct gemm_key *key, const void *bias,
                   const void *aux, struct gemm_plan **out, struct error *err)
{
    struct entry *e = slot_of(c, key);
    if (!e->is_used) {
        if (c->num_entries == MAX_ENTRIES) {
            clear(c);
            e = slot_of(c, key);
        }
        if (search(c, key, bias, aux, &e->plan, err) != 0) {
            plan_drop(&e->plan);
            return -1;
        }
        e->is_used = true;
        e->key = *key;
        c->num_entries++;
    }
    *out = &e->plan;
    return 0;
}
