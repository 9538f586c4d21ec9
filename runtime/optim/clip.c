#include "runtime/optim/clip.h"

double clip_factor(double norm, double max_norm)
{
    if (max_norm <= 0.0)
        return 1.0;
    double factor = max_norm / (norm + 1e-6);
    return factor < 1.0 ? factor : 1.0;
}
