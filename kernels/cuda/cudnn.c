/* cuDNN's plans for attention, by shape, and their calls. */
#include "kernels/cuda/cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/workspace.h"

#if __has_include(<cudnn.h>)

#include "kernels/cuda/cudnn_graph.h"

#define LIBRARY "libcudnn.so.9"
/* Older ones lack what the graphs are made of. */
#define MIN_VERSION 90100
#define MAX_PLANS 64
#define MAX_WIDTH 128

struct plan {
    struct cudnn_shape shape;
    struct cudnn_graph graph;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN doesn't take it */
    char *memory;                  /* what the engine asks for; behind it dots and sums */
    int64_t engine_bytes, dots_bytes, sums_bytes;
};

struct cudnn {
    struct cudnn_api api;
    cudnnHandle_t handle;
    bool backward_too;
    bool has_told; /* that something was left to our own kernels */
    int num_plans;
    struct plan *plans[MAX_PLANS];
};

static bool is_wanted(bool *backward_too)
{
    const char *choice = getenv("TANDEM_CUDA_ATTENTION");
    if (!choice || !*choice) {
        choice = "auto";
    }
    *backward_too = strcmp(choice, "cudnn") == 0;
    if (strcmp(choice, "own") != 0 && strcmp(choice, "auto") != 0 && !*backward_too) {
        log_warn("TANDEM_CUDA_ATTENTION=%s: own, auto and cudnn are known; taken as auto", choice);
    }
    return strcmp(choice, "own") != 0;
}

static const char *library_name(void)
{
    const char *named = getenv("TANDEM_CUDNN");
    if (named && *named) {
        return named;
    }
#if defined CUSIM_PLAIN || defined CUSIM_ASAN || defined CUSIM_TSAN
    return NULL; /* the real one has nothing to do with a simulated device */
#else
    return LIBRARY;
#endif
}

static int start(struct cudnn *c, const char *library, struct error *err)
{
    if (cudnn_api_load(&c->api, library, err) != 0) {
        return -1;
    }
    size_t version = c->api.cudnnGetVersion();
    if (version < MIN_VERSION) {
        return error_set(err, ERR_FAILED_PRECONDITION, "%s is version %zu, %d is needed", library,
                         version, MIN_VERSION);
    }
    cudnnStatus_t status = c->api.cudnnCreate(&c->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        c->handle = NULL;
        return error_set(err, ERR_INTERNAL, "cudnnCreate: %s", c->api.cudnnGetErrorString(status));
    }
    return 0;
}

struct cudnn *cudnn_open(void)
{
    struct error err;
    bool backward_too;
    const char *library = library_name();
    struct cudnn *c = is_wanted(&backward_too) && library ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        return NULL;
    }
    c->backward_too = backward_too;
    if (start(c, library, &err) != 0) {
        log_info("attention is computed by our own kernels: no cuDNN: %s", err.text);
        cudnn_close(c);
        return NULL;
    }
    if (backward_too) {
        log_warn("cuDNN's backward pass of attention adds in any order: a run that is repeated "
                 "won't have the same bits");
    }
    return c;
}

static void plan_free(struct plan *p)
{
    cudnn_graph_free(&p->graph);
    if (p->memory) {
        cudaFree(p->memory);
    }
    free(p);
}

void cudnn_close(struct cudnn *c)
{
    if (!c) {
        return;
    }
    for (int i = 0; i < c->num_plans; i++) {
        plan_free(c->plans[i]);
    }
    if (c->handle) {
        c->api.cudnnDestroy(c->handle);
    }
    cudnn_api_unload(&c->api);
    free(c);
}

/* ---- plans ---- */

static struct cudnn_shape shape_of(const struct attention_args *a, bool backward)
{
    return (struct cudnn_shape){a->b, a->t, a->h, a->kv, a->e, backward};
}

static bool same(const struct cudnn_shape *x, const struct cudnn_shape *y)
{
    return x->b == y->b && x->t == y->t && x->h == y->h && x->kv == y->kv && x->e == y->e &&
           x->backward == y->backward;
}

static struct plan *find(const struct cudnn *c, const struct cudnn_shape *shape)
{
    for (int i = 0; i < c->num_plans; i++) {
        if (same(&c->plans[i]->shape, shape)) {
            return c->plans[i];
        }
    }
    return NULL;
}

static int64_t aligned(int64_t bytes)
{
    return (int64_t)workspace_aligned(bytes);
}

static int make(struct cudnn *c, struct plan *p, struct error *err)
{
    const struct cudnn_shape *s = &p->shape;
    cudnnBackendDescriptor_t plan;
    if (s->backward) {
        p->dots_bytes = aligned(s->b * s->h * s->t * (int64_t)sizeof(float));
        p->sums_bytes = aligned(s->b * s->h * s->t * s->e * (int64_t)sizeof(float));
    }
    int64_t room = CUDNN_WORKSPACE_MAX - p->dots_bytes - p->sums_bytes;
    if (room < 0) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "it would need more than %lld MiB",
                         (long long)(CUDNN_WORKSPACE_MAX >> 20));
    }
    if (cudnn_graph_build(&p->graph, &c->api, c->handle, s, err) != 0 ||
        cudnn_graph_plan(&p->graph, c->handle, room, &plan, &p->engine_bytes, err) != 0) {
        return -1;
    }
    p->engine_bytes = aligned(p->engine_bytes);
    int64_t bytes = p->engine_bytes + p->dots_bytes + p->sums_bytes;
    if (bytes > 0 && cudaMalloc((void **)&p->memory, (size_t)bytes) != cudaSuccess) {
        cudaGetLastError();
        p->memory = NULL;
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no %lld bytes of device memory for it",
                         (long long)bytes);
    }
    p->plan = plan;
    return 0;
}

static void tell(struct cudnn *c, const struct cudnn_shape *s, const char *why)
{
    if (!c->has_told) {
        log_info("attention%s of %lld x %lld, %lld/%lld heads of %lld is computed by our own "
                 "kernels: cuDNN: %s",
                 s->backward ? "'s backward pass" : "", (long long)s->b, (long long)s->t,
                 (long long)s->h, (long long)s->kv, (long long)s->e, why);
        c->has_told = true;
    }
}

static bool can_take(const struct cudnn *c, enum dtype t, const struct attention_args *a,
                     bool backward)
{
    return c && t == DTYPE_BF16 && a->b > 0 && a->t > 0 && a->h > 0 && a->kv > 0 &&
           a->h % a->kv == 0 && a->e >= 8 && a->e <= MAX_WIDTH && a->e % 8 == 0 &&
           (!backward || c->backward_too);
}

static void prepare(struct cudnn *c, const struct cudnn_shape *shape)
{
    struct error err;
    struct plan *p = find(c, shape) || c->num_plans == MAX_PLANS ? NULL : calloc(1, sizeof *p);
    if (!p) {
        return;
    }
    p->shape = *shape;
    c->plans[c->num_plans++] = p;
    if (make(c, p, &err) != 0) {
        tell(c, shape, err.text);
    }
}

void cudnn_prepare(struct cudnn *c, enum dtype t, const struct attention_args *a)
{
    for (int backward = 0; backward < 2; backward++) {
        if (can_take(c, t, a, backward)) {
            struct cudnn_shape shape = shape_of(a, backward);
            prepare(c, &shape);
        }
    }
}

/* ---- calls ---- */

struct call {
    int64_t ids[CUDNN_NUM_TENSORS];
    const void *pointers[CUDNN_NUM_TENSORS];
    int num;
};

static void give(struct call *c, enum cudnn_tensor id, const void *pointer)
{
    c->ids[c->num] = id;
    c->pointers[c->num++] = pointer;
}

static bool is_aligned(const struct call *c)
{
    uintptr_t all = 0;
    for (int i = 0; i < c->num; i++) {
        bool by_value = c->ids[i] >= CUDNN_SCALE && c->ids[i] <= CUDNN_ONE;
        all |= by_value || c->ids[i] == CUDNN_LSE ? 0 : (uintptr_t)c->pointers[i];
    }
    return all % 16 == 0;
}

static cudnnStatus_t execute(struct cudnn *c, const struct plan *p, const struct call *call)
{
    cudnnBackendDescriptor_t pack;
    void *workspace = p->memory;
    const struct cudnn_api *api = &c->api;
    cudnnStatus_t e =
        api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (e != CUDNN_STATUS_SUCCESS) {
        return e;
    }
    e = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                      call->num, call->ids);
    if (e == CUDNN_STATUS_SUCCESS) {
        e = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, call->num, call->pointers);
    }
    if (e == CUDNN_STATUS_SUCCESS) {
        e = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    }
    if (e == CUDNN_STATUS_SUCCESS) {
        e = api->cudnnBackendFinalize(pack);
    }
    if (e == CUDNN_STATUS_SUCCESS) {
        e = api->cudnnBackendExecute(c->handle, p->plan, pack);
    }
    api->cudnnBackendDestroyDescriptor(pack);
    return e;
}

bool cudnn_attention(struct cudnn *c, cudaStream_t s, enum dtype t, const struct attention_args *a,
                     bool backward)
{
    if (!can_take(c, t, a, backward) || a->segments) {
        return false;
    }
    struct cudnn_shape shape = shape_of(a, backward);
    struct plan *p = find(c, &shape);
    if (!p || !p->plan) {
        return false;
    }
    float scale = (float)a->scale, nothing = -INFINITY, one = 1;
    char *dots = backward ? p->memory + p->engine_bytes : NULL;
    char *sums = backward ? dots + p->dots_bytes : NULL;
    struct call call = {.num = 0};
    give(&call, CUDNN_Q, a->q);
    give(&call, CUDNN_K, a->k);
    give(&call, CUDNN_V, a->v);
    give(&call, CUDNN_O, a->o);
    give(&call, CUDNN_LSE, a->lse);
    give(&call, CUDNN_SCALE, &scale);
    give(&call, CUDNN_NOTHING, &nothing);
    if (backward) {
        give(&call, CUDNN_DO, a->d_o);
        give(&call, CUDNN_DQ, a->dq);
        give(&call, CUDNN_DK, a->dk);
        give(&call, CUDNN_DV, a->dv);
        give(&call, CUDNN_ONE, &one);
        give(&call, CUDNN_DOTS, dots);
        give(&call, CUDNN_SUMS, sums);
    }
    if (!is_aligned(&call)) {
        return false;
    }
    cudnnStatus_t e = c->api.cudnnSetStream(c->handle, s);
    if (e == CUDNN_STATUS_SUCCESS && backward &&
        cudaMemsetAsync(sums, 0, (size_t)p->sums_bytes, s) != cudaSuccess) {
        e = CUDNN_STATUS_EXECUTION_FAILED;
    }
    if (e == CUDNN_STATUS_SUCCESS) {
        e = execute(c, p, &call);
    }
    if (e != CUDNN_STATUS_SUCCESS) {
        tell(c, &shape, c->api.cudnnGetErrorString(e));
        p->plan = NULL; /* not again */
        return false;
    }
    return true;
}

#else

struct cudnn *cudnn_open(void)
{
    return NULL;
}

void cudnn_close(struct cudnn *c)
{
    (void)c;
}

void cudnn_prepare(struct cudnn *c, enum dtype t, const struct attention_args *a)
{
    (void)c;
    (void)t;
    (void)a;
}

bool cudnn_attention(struct cudnn *c, cudaStream_t s, enum dtype t, const struct attention_args *a,
                     bool backward)
{
    (void)c;
    (void)s;
    (void)t;
    (void)a;
    (void)backward;
    return false;
}

#endif
