/* A cuDNN that computes nothing: it takes every graph, unless it is told not to, and keeps what the
 * last call was given. What real graphs mean is tested with the real library (cudnn_graph_test.c).
 */
#include "tests/cusim/fake_cudnn.h"

#include <stdlib.h>
#include <string.h>

struct fake_cudnn fake_cudnn;

/* A descriptor is what kind it is, and whether it was finalised. */
struct fake_descriptor {
    cudnnBackendDescriptorType_t type;
    bool done;
};

size_t cudnnGetVersion(void)
{
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "fine" : "refused";
}

void cudnnGetLastErrorString(char *message, size_t max)
{
    if (max > 0) {
        strncpy(message, "as it was told", max - 1);
        message[max - 1] = 0;
    }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = malloc(1);
    fake_cudnn.handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    fake_cudnn.handles--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    fake_cudnn.stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    struct fake_descriptor *d = calloc(1, sizeof *d);
    d->type = type;
    *out = d;
    fake_cudnn.descriptors++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    free(d);
    fake_cudnn.descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct fake_descriptor *d = descriptor;
    if (d->done) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    d->done = true;
    bool refused = d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && fake_cudnn.refuse_plans;
    return refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n,
                                       const void *value)
{
    const struct fake_descriptor *d = descriptor;
    (void)type;
    if (d->done || n < 1 || n > FAKE_CUDNN_MAX) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    switch (name) {
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS:
        memcpy(fake_cudnn.ids, value, (size_t)n * sizeof *fake_cudnn.ids);
        fake_cudnn.num = (int)n;
        break;
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
        memcpy(fake_cudnn.pointers, value, (size_t)n * sizeof *fake_cudnn.pointers);
        break;
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE:
        memcpy(&fake_cudnn.workspace, value, sizeof fake_cudnn.workspace);
        break;
    default:
        break;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *num,
                                       void *out)
{
    const struct fake_descriptor *d = descriptor;
    (void)type;
    (void)room;
    if (!d->done) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    *num = 1;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        memcpy(out, &fake_cudnn.workspace_bytes, sizeof fake_cudnn.workspace_bytes);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    (void)handle;
    const struct fake_descriptor *p = plan, *v = pack;
    if (!p->done || !v->done || fake_cudnn.refuse_calls) {
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
    for (int i = 0; i < fake_cudnn.num; i++) {
        int64_t id = fake_cudnn.ids[i];
        if (id >= FAKE_CUDNN_FIRST_NUMBER && id < FAKE_CUDNN_FIRST_NUMBER + 3) {
            memcpy(&fake_cudnn.numbers[id - FAKE_CUDNN_FIRST_NUMBER], fake_cudnn.pointers[i],
                   sizeof(float));
        }
    }
    fake_cudnn.calls++;
    return CUDNN_STATUS_SUCCESS;
}
