/* Work that is enqueued once and launched often, as a CUDA graph. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device.h"

struct graph {
    cudaGraphExec_t exec;
};

/* What other threads do meanwhile is no part of it and no hindrance. */
int cuda_capture_begin(struct device *dev, struct stream *s, struct error *err)
{
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeThreadLocal), "capture");
    return 0;
}

static void say_why(char *why, size_t size, const char *what, cudaError_t e)
{
    snprintf(why, size, "%s: CUDA error %d (%s): %s", what, (int)e, cudaGetErrorName(e),
             cudaGetErrorString(e));
    cudaGetLastError();
}

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t g)
{
#if CUDART_VERSION >= 12000
    return cudaGraphInstantiate(out, g, 0);
#else
    return cudaGraphInstantiate(out, g, NULL, NULL, 0);
#endif
}

int cuda_capture_end(struct device *dev, struct stream *s, struct graph **out, char *why,
                     size_t why_size, struct error *err)
{
    cudaGraph_t captured = NULL;
    *out = NULL;
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    struct graph *g = calloc(1, sizeof *g);
    cudaError_t e = cudaStreamEndCapture(s->cuda, &captured);
    if (!g) {
        e = cudaErrorMemoryAllocation;
    }
    if (e == cudaSuccess) {
        e = instantiate(&g->exec, captured);
    }
    if (captured) {
        cudaGraphDestroy(captured);
    }
    if (e != cudaSuccess) {
        say_why(why, why_size, "the work can't be captured", e);
        free(g);
        return 0;
    }
    *out = g;
    return 0;
}

int cuda_graph_launch(struct device *dev, struct stream *s, struct graph *g, struct error *err)
{
    if (cuda_use(dev, err) != 0) {
        return -1;
    }
    CUDA_TRY(cudaGraphLaunch(g->exec, s->cuda), "launch of captured work");
    return 0;
}

void cuda_graph_free(struct device *dev, struct graph *g)
{
    if (g) {
        cuda_use(dev, NULL);
        cudaGraphExecDestroy(g->exec);
        free(g);
    }
}
