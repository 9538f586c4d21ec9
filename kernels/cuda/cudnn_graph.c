/* Attention as cuDNN's operations: a graph that its engines know as a whole and run in one kernel,
 * not one operation after the other. What lies between is virtual: it has a shape and no memory. */
#if __has_include(<cudnn.h>)

#include "kernels/cuda/cudnn_graph.h"

#include <string.h>

typedef cudnnBackendDescriptor_t desc;

#define NUM_DIMS 4
#define FIRST_VIRTUAL_ID 100
#define MAX_CONFIGS 16
#define ALIGNMENT 16

/* A tensor's dimensions and how far apart they lie. */
struct view {
    int64_t dims[NUM_DIMS], strides[NUM_DIMS];
};

static struct view view_dense(int64_t b, int64_t h, int64_t rows, int64_t columns)
{
    return (struct view){{b, h, rows, columns}, {h * rows * columns, rows * columns, columns, 1}};
}

/* [B,T,heads,E] in memory, as [B,heads,T,E]. */
static struct view view_rows(int64_t b, int64_t t, int64_t heads, int64_t e)
{
    return (struct view){{b, heads, t, e}, {t * heads * e, e, heads * e, 1}};
}

static struct view view_turned(struct view v)
{
    return (struct view){{v.dims[0], v.dims[1], v.dims[3], v.dims[2]},
                         {v.strides[0], v.strides[1], v.strides[3], v.strides[2]}};
}

/* ---- descriptors ---- */

static bool good(struct cudnn_graph *g, cudnnStatus_t status, const char *at)
{
    if (g->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        g->status = status;
        g->at = at;
    }
    return g->status == CUDNN_STATUS_SUCCESS;
}

static int failed(struct cudnn_graph *g, struct error *err)
{
    char why[256] = "";
    g->api->cudnnGetLastErrorString(why, sizeof why);
    return error_set(err, ERR_UNIMPLEMENTED, "%s: %s: %s", g->at ? g->at : "graph",
                     g->api->cudnnGetErrorString(g->status), why);
}

static desc create(struct cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    desc d = NULL;
    if (g->num_all == CUDNN_MAX_DESCRIPTORS) {
        good(g, CUDNN_STATUS_ALLOC_FAILED, "too many descriptors");
    } else if (g->status == CUDNN_STATUS_SUCCESS &&
               good(g, g->api->cudnnBackendCreateDescriptor(type, &d), "descriptor")) {
        g->all[g->num_all++] = d;
    }
    return d;
}

static void set(struct cudnn_graph *g, desc d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (g->status == CUDNN_STATUS_SUCCESS) {
        good(g, g->api->cudnnBackendSetAttribute(d, name, type, n, value), "attribute");
    }
}

static void set_desc(struct cudnn_graph *g, desc d, cudnnBackendAttributeName_t name, desc value)
{
    if (value) {
        set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
    }
}

static void finish(struct cudnn_graph *g, desc d, const char *at)
{
    if (g->status == CUDNN_STATUS_SUCCESS) {
        good(g, g->api->cudnnBackendFinalize(d), at);
    }
}

static void finish_op(struct cudnn_graph *g, desc op, const char *at)
{
    finish(g, op, at);
    if (g->num_ops == CUDNN_MAX_OPS) {
        good(g, CUDNN_STATUS_ALLOC_FAILED, "too many operations");
    } else if (g->status == CUDNN_STATUS_SUCCESS) {
        g->ops[g->num_ops++] = op;
    }
}

/* id 0: virtual. */
static desc tensor(struct cudnn_graph *g, int64_t id, struct view v, cudnnDataType_t type)
{
    desc d = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool is_virtual = id == 0;
    bool by_value = id == CUDNN_SCALE || id == CUDNN_NOTHING || id == CUDNN_ONE;
    int64_t alignment = by_value ? (int64_t)sizeof(float) : ALIGNMENT;
    id = is_virtual ? g->next_id++ : id;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, NUM_DIMS, v.dims);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, NUM_DIMS, v.strides);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(g, d, "tensor");
    return d;
}

static desc between(struct cudnn_graph *g, struct view v, cudnnDataType_t type)
{
    return tensor(g, 0, v, type);
}

static desc scalar(struct cudnn_graph *g, enum cudnn_tensor id)
{
    return tensor(g, id, view_dense(1, 1, 1, 1), CUDNN_DATA_FLOAT);
}

/* ---- operations: each returns where its result goes ---- */

static desc multiply(struct cudnn_graph *g, desc a, desc b, desc c)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, how, "product");
    desc op = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    finish_op(g, op, "product");
    return c;
}

/* What a pointwise operation takes; b, mask and axis where it has them. */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    desc x, b, mask;
    int64_t axis; /* -1: none */
};

static desc each(struct cudnn_graph *g, struct pointwise p, desc y)
{
    desc how = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.precision);
    if (p.axis >= 0) {
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
    }
    finish(g, how, "pointwise");
    desc op = create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.mask);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_op(g, op, "pointwise");
    return y;
}

/* y = x op b, or op(x) where b is NULL; in f32. */
static desc apply(struct cudnn_graph *g, cudnnPointwiseMode_t mode, desc x, desc b, desc y)
{
    return each(g, (struct pointwise){mode, CUDNN_DATA_FLOAT, x, b, NULL, -1}, y);
}

static desc reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t by, desc x, desc y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    desc how = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finish(g, how, "reduction");
    desc op = create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    finish_op(g, op, "reduction");
    return y;
}

static desc reshape(struct cudnn_graph *g, desc x, desc y)
{
    desc op = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_op(g, op, "reshape");
    return y;
}

/* Scores of keys behind their query become minus infinity. */
static desc mask(struct cudnn_graph *g, struct view scores, desc x)
{
    desc row =
        each(g, (struct pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, x, NULL, NULL, 2},
             between(g, scores, CUDNN_DATA_INT32));
    desc column =
        each(g, (struct pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, x, NULL, NULL, 3},
             between(g, scores, CUDNN_DATA_INT32));
    desc sees = each(
        g, (struct pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, column, NULL, -1},
        between(g, scores, CUDNN_DATA_BOOLEAN));
    return each(g,
                (struct pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x,
                                   scalar(g, CUDNN_NOTHING), sees, -1},
                between(g, scores, CUDNN_DATA_FLOAT));
}

/* ---- attention ---- */

/* The shapes that both passes name. */
struct views {
    struct view queries, keys, scores, stats;
};

static struct views views_of(const struct cudnn_shape *s)
{
    return (struct views){
        .queries = view_rows(s->b, s->t, s->h, s->e),
        .keys = view_rows(s->b, s->t, s->kv, s->e),
        .scores = view_dense(s->b, s->h, s->t, s->t),
        .stats = view_dense(s->b, s->h, s->t, 1),
    };
}

#define F32 CUDNN_DATA_FLOAT
#define BF16 CUDNN_DATA_BFLOAT16

static void forward(struct cudnn_graph *g, const struct cudnn_shape *shape)
{
    struct views v = views_of(shape);
    desc q = tensor(g, CUDNN_Q, v.queries, BF16);
    desc k = tensor(g, CUDNN_K, view_turned(v.keys), BF16);
    desc s = multiply(g, q, k, between(g, v.scores, F32));
    s = apply(g, CUDNN_POINTWISE_MUL, s, scalar(g, CUDNN_SCALE), between(g, v.scores, F32));
    s = mask(g, v.scores, s);
    desc max = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, between(g, v.stats, F32));
    desc below = apply(g, CUDNN_POINTWISE_SUB, s, max, between(g, v.scores, F32));
    desc weights = apply(g, CUDNN_POINTWISE_EXP, below, NULL, between(g, v.scores, F32));
    desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, weights, between(g, v.stats, F32));
    desc log_sum = apply(g, CUDNN_POINTWISE_LOG, sum, NULL, between(g, v.stats, F32));
    apply(g, CUDNN_POINTWISE_ADD, max, log_sum, tensor(g, CUDNN_LSE, v.stats, F32));
    desc p = apply(g, CUDNN_POINTWISE_DIV, weights, sum, between(g, v.scores, BF16));
    multiply(g, p, tensor(g, CUDNN_V, v.keys, BF16), tensor(g, CUDNN_O, v.queries, BF16));
}

/* left * right to the tensor `id` of keys; with groups of heads, summed over these. */
static void multiply_to_keys(struct cudnn_graph *g, const struct cudnn_shape *shape, desc left,
                             desc right, enum cudnn_tensor id)
{
    desc to = tensor(g, id, views_of(shape).keys, BF16);
    if (shape->h == shape->kv) {
        multiply(g, left, right, to);
        return;
    }
    struct view all = view_dense(shape->b, shape->h, shape->t, shape->e);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, multiply(g, left, right, between(g, all, BF16)), to);
}

static void backward(struct cudnn_graph *g, const struct cudnn_shape *shape)
{
    struct views v = views_of(shape);
    desc q = tensor(g, CUDNN_Q, v.queries, BF16), d_o = tensor(g, CUDNN_DO, v.queries, BF16);
    desc k = tensor(g, CUDNN_K, view_turned(v.keys), BF16);
    desc scale = scalar(g, CUDNN_SCALE);

    desc dots = apply(g, CUDNN_POINTWISE_MUL, d_o, tensor(g, CUDNN_O, v.queries, BF16),
                      between(g, v.queries, F32));
    dots = reduce(g, CUDNN_REDUCE_TENSOR_ADD, dots, between(g, v.stats, F32));
    dots = apply(g, CUDNN_POINTWISE_MUL, dots, scalar(g, CUDNN_ONE),
                 tensor(g, CUDNN_DOTS, v.stats, F32));

    desc s = multiply(g, q, k, between(g, v.scores, F32));
    s = apply(g, CUDNN_POINTWISE_MUL, s, scale, between(g, v.scores, F32));
    s = apply(g, CUDNN_POINTWISE_SUB, s, tensor(g, CUDNN_LSE, v.stats, F32),
              between(g, v.scores, F32));
    s = mask(g, v.scores, s);
    desc p = apply(g, CUDNN_POINTWISE_EXP, s, NULL, between(g, v.scores, F32));
    desc turned = reshape(g, p, between(g, view_turned(v.scores), BF16));
    multiply_to_keys(g, shape, turned, d_o, CUDNN_DV);

    desc dp =
        multiply(g, d_o, tensor(g, CUDNN_V, view_turned(v.keys), BF16), between(g, v.scores, F32));
    dp = apply(g, CUDNN_POINTWISE_SUB, dp, dots, between(g, v.scores, F32));
    dp = apply(g, CUDNN_POINTWISE_MUL, dp, p, between(g, v.scores, F32));
    desc ds = apply(g, CUDNN_POINTWISE_MUL, dp, scale, between(g, v.scores, BF16));
    turned = reshape(g, ds, between(g, view_turned(v.scores), BF16));
    multiply_to_keys(g, shape, turned, q, CUDNN_DK);

    desc sums = tensor(g, CUDNN_SUMS, view_dense(shape->b, shape->h, shape->t, shape->e), F32);
    multiply(g, ds, reshape(g, k, between(g, v.keys, BF16)), sums);
    apply(g, CUDNN_POINTWISE_IDENTITY, sums, NULL, tensor(g, CUDNN_DQ, v.queries, BF16));
}

int cudnn_graph_build(struct cudnn_graph *g, const struct cudnn_api *api, cudnnHandle_t handle,
                      const struct cudnn_shape *s, struct error *err)
{
    memset(g, 0, sizeof *g);
    g->api = api;
    g->next_id = FIRST_VIRTUAL_ID;
    if (s->backward) {
        backward(g, s);
    } else {
        forward(g, s);
    }
    g->graph = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle) {
        set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    }
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->num_ops,
        g->ops);
    finish(g, g->graph, "graph");
    return g->status == CUDNN_STATUS_SUCCESS ? 0 : failed(g, err);
}

void cudnn_graph_free(struct cudnn_graph *g)
{
    while (g->num_all > 0) {
        g->api->cudnnBackendDestroyDescriptor(g->all[--g->num_all]);
    }
}

/* ---- engines ---- */

static desc ask(struct cudnn_graph *g, desc device, cudnnBackendHeurMode_t mode)
{
    desc heuristic = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_desc(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    finish(g, heuristic, "engines");
    return heuristic;
}

int cudnn_graph_engines(struct cudnn_graph *g, cudnnBackendDescriptor_t device, int64_t *num,
                        struct error *err)
{
    desc heuristic = ask(g, device, CUDNN_HEUR_MODE_A);
    *num = 0;
    if (g->status == CUDNN_STATUS_SUCCESS) {
        good(g,
             g->api->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, num, NULL),
             "engines");
    }
    return g->status == CUDNN_STATUS_SUCCESS ? 0 : failed(g, err);
}

/* Of one proposal; what it says against it is no failure of the graph. */
static bool plan_of(struct cudnn_graph *g, cudnnHandle_t handle, desc config, int64_t max_bytes,
                    desc *plan, int64_t *bytes)
{
    int64_t num = 0;
    desc p = create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(g, p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_desc(g, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (g->status != CUDNN_STATUS_SUCCESS ||
        g->api->cudnnBackendFinalize(p) != CUDNN_STATUS_SUCCESS ||
        g->api->cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &num,
                                         bytes) != CUDNN_STATUS_SUCCESS ||
        num != 1 || *bytes < 0 || *bytes > max_bytes) {
        return false;
    }
    *plan = p;
    return true;
}

int cudnn_graph_plan(struct cudnn_graph *g, cudnnHandle_t handle, int64_t max_bytes,
                     cudnnBackendDescriptor_t *plan, int64_t *bytes, struct error *err)
{
    desc heuristic = ask(g, NULL, CUDNN_HEUR_MODE_A);
    desc configs[MAX_CONFIGS];
    int64_t num = 0;
    for (int i = 0; i < MAX_CONFIGS; i++) {
        configs[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (g->status == CUDNN_STATUS_SUCCESS) {
        good(g,
             g->api->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &num,
                                              configs),
             "engines");
    }
    if (g->status != CUDNN_STATUS_SUCCESS) {
        return failed(g, err);
    }
    for (int64_t i = 0; i < num && i < MAX_CONFIGS; i++) {
        if (plan_of(g, handle, configs[i], max_bytes, plan, bytes)) {
            return 0;
        }
    }
    return error_set(err, ERR_UNIMPLEMENTED, "no engine of %lld takes it", (long long)num);
}

int cudnn_graph_device(struct cudnn_graph *g, const char *json, cudnnBackendDescriptor_t *device,
                       struct error *err)
{
    *device = create(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(g, *device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(json), json);
    finish(g, *device, "device");
    return g->status == CUDNN_STATUS_SUCCESS ? 0 : failed(g, err);
}

#else

typedef int no_cudnn_here;

#endif
