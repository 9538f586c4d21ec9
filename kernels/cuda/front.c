#include "kernels/cuda/front.h"

const struct kernels cuda_kernels = {.name = "cuda"};
