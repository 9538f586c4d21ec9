/* The norm and what gradients are multiplied by, on the device: nobody waits for them. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.h"

/* norm may be squares. */
static __global__ void __launch_bounds__(CU_WARP)
    clip_kernel(double *norm, double *scale, const double *squares, double max_norm)
{
    if (threadIdx.x == 0) {
        double size = sqrt(*squares);
        double factor = max_norm / (size + 1e-6);
        *norm = size;
        *scale = !isfinite(size) ? (double)NAN : max_norm > 0 && factor < 1 ? factor : 1.0;
    }
}

extern "C" cudaError_t cuda_clip(cudaStream_t s, double *norm, double *scale, const double *squares,
                                 double max_norm)
{
    CU_LAUNCH(clip_kernel, dim3(1), dim3(CU_WARP), 0, s, norm, scale, squares, max_norm);
    return cudaGetLastError();
}
