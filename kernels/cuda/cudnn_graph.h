/* cuDNN's library, and attention as a graph of its operations. C alone: its backend API. */
#ifndef TANDEM_KERNELS_CUDA_CUDNN_GRAPH_H
#define TANDEM_KERNELS_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>

#include "kernels/kernels.h"

/* Functions that are taken from the library, by their names in cudnn.h. */
#define CUDNN_FUNCTIONS(F)                                                                         \
    F(cudnnCreate)                                                                                 \
    F(cudnnDestroy)                                                                                \
    F(cudnnSetStream)                                                                              \
    F(cudnnGetVersion)                                                                             \
    F(cudnnGetErrorString)                                                                         \
    F(cudnnGetLastErrorString)                                                                     \
    F(cudnnBackendCreateDescriptor)                                                                \
    F(cudnnBackendDestroyDescriptor)                                                               \
    F(cudnnBackendFinalize)                                                                        \
    F(cudnnBackendSetAttribute)                                                                    \
    F(cudnnBackendGetAttribute)                                                                    \
    F(cudnnBackendExecute)

struct cudnn_api {
    void *library;
#define CUDNN_FIELD(name) __typeof__(&name) name;
    CUDNN_FUNCTIONS(CUDNN_FIELD)
#undef CUDNN_FIELD
};

int cudnn_api_load(struct cudnn_api *api, const char *path, struct error *err);
void cudnn_api_unload(struct cudnn_api *api);

struct cudnn_shape {
    int64_t b, t, h, kv, e;
    bool backward;
};

/* What a graph's tensors are called in a call. */
enum cudnn_tensor {
    CUDNN_Q = 1,
    CUDNN_K,
    CUDNN_V,
    CUDNN_O,
    CUDNN_LSE,
    CUDNN_DO,
    CUDNN_DQ,
    CUDNN_DK,
    CUDNN_DV,
    CUDNN_SCALE,   /* f32 in host memory, like the next two */
    CUDNN_NOTHING, /* minus infinity */
    CUDNN_ONE,
    CUDNN_DOTS, /* [B,H,T] f32 of ours: sum(dO * O) */
    CUDNN_SUMS, /* [B,H,T,E] f32 of ours, zeros: dQ so far */
    CUDNN_NUM_TENSORS,
};

#define CUDNN_MAX_OPS 32
#define CUDNN_MAX_DESCRIPTORS 256

struct cudnn_graph {
    const struct cudnn_api *api;
    cudnnBackendDescriptor_t ops[CUDNN_MAX_OPS], all[CUDNN_MAX_DESCRIPTORS], graph;
    int num_ops, num_all;
    int64_t next_id;
    cudnnStatus_t status; /* the first that wasn't good; from then on nothing is called */
    const char *at;       /* where */
};

/* The graph of attention, finalised. handle may be NULL where there is no GPU. */
int cudnn_graph_build(struct cudnn_graph *g, const struct cudnn_api *api, cudnnHandle_t handle,
                      const struct cudnn_shape *s, struct error *err);
void cudnn_graph_free(struct cudnn_graph *g);

/* How many engines cuDNN proposes for it; device NULL: for the graph's handle. */
int cudnn_graph_engines(struct cudnn_graph *g, cudnnBackendDescriptor_t device, int64_t *num,
                        struct error *err);
/* The first engine's plan that can be made and takes at most max_bytes. */
int cudnn_graph_plan(struct cudnn_graph *g, cudnnHandle_t handle, int64_t max_bytes,
                     cudnnBackendDescriptor_t *plan, int64_t *bytes, struct error *err);

/* A device by its properties, as JSON, so that graphs can be asked about without a GPU. */
int cudnn_graph_device(struct cudnn_graph *g, const char *json, cudnnBackendDescriptor_t *device,
                       struct error *err);

#endif
