#include "runtime/optim/clip.h"

#include <math.h>

int clip_norm(struct device *dev, const struct kernels *kernels, struct stream *stream,
              enum dtype dtype, const void *grads, int64_t n, double *scratch, double *out,
              struct error *err)
{
    double sum = 0.0;
    if (kernels->sum_squares(dev, stream, dtype, scratch, grads, n, err) != 0 ||
        dev->ops->copy(dev, stream, &sum, scratch, sizeof(sum), COPY_TO_HOST, err) != 0 ||
        dev->ops->stream_sync(dev, stream, err) != 0)
        return -1;
    *out = sqrt(sum);
    return 0;
}

double clip_factor(double norm, double max_norm)
{
    if (max_norm <= 0.0)
        return 1.0;
    double factor = max_norm / (norm + 1e-6);
    return factor < 1.0 ? factor : 1.0;
}
