/* Cross entropy of a vocabulary that is cut over ranks. Bytes a logit: max and sum read its type's
 * once, finish reads and writes it once. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/logits.cuh"

/* Of a row of logits: what struct logits_part says of it. */
template <class T> struct part {
    const T *logits;
    int64_t r, ld, valid, first;
    const int32_t *targets;
};

template <class T, int N>
static __global__ void __launch_bounds__(LOGITS_THREADS)
    max_kernel(double *__restrict__ max, struct part<T> p)
{
    const T *x = p.logits + (int64_t)blockIdx.x * p.ld;
    bool ignored = p.targets[blockIdx.x] == LOGITS_IGNORED;
    struct logits_max<T> f = {
        x, -INFINITY
    };
    logits_each<T, N>(f, x, ignored ? 0 : p.valid);
    float largest = block_max(f.max);
    if (threadIdx.x == 0) {
        max[blockIdx.x] = ignored ? 0 : (double)largest;
    }
}

template <class T, int N>
static __global__ void __launch_bounds__(LOGITS_THREADS)
    sum_kernel(double *__restrict__ sums, const double *__restrict__ max, struct part<T> p)
{
    const T *x = p.logits + (int64_t)blockIdx.x * p.ld;
    bool ignored = p.targets[blockIdx.x] == LOGITS_IGNORED;
    int64_t target = (int64_t)p.targets[blockIdx.x] - p.first;
    struct logits_sum<T> f = {
        x, logits_base((float)max[blockIdx.x]), 0
    };
    logits_each<T, N>(f, x, ignored ? 0 : p.valid);
    double total = block_sum((double)f.sum);
    if (threadIdx.x == 0) {
        bool here = !ignored && target >= 0 && target < p.valid;
        sums[blockIdx.x] = total;
        sums[p.r + blockIdx.x] = here ? (double)cu_float(x[target]) : 0;
    }
}

/* dlogits may alias logits: a thread writes what it alone has read. */
template <class T, int N>
static __global__ void __launch_bounds__(LOGITS_THREADS)
    finish_kernel(double *__restrict__ nll, T *dlogits, const double *__restrict__ max,
                  const double *__restrict__ sums, float dloss, struct part<T> p)
{
    int64_t row = blockIdx.x;
    const T *x = p.logits + row * p.ld;
    bool ignored = p.targets[row] == LOGITS_IGNORED;
    double total = sums[row];
    if (threadIdx.x == 0) {
        nll[row] = ignored ? 0 : log(total) + max[row] - sums[p.r + row];
    }
    if (dlogits != NULL) {
        T *dx = dlogits + row * p.ld;
        int64_t valid = ignored ? 0 : p.valid;
        struct logits_gradient<T> g = {
            dx, x, (int64_t)p.targets[row] - p.first, logits_base((float)max[row]),
                (float)((double)dloss / total), dloss
        };
        logits_each<T, N>(g, x, valid);
        struct logits_zero<T> zero = {
            dx + valid
        };
        logits_each<T, N>(zero, dx + valid, p.ld - valid);
    }
}

template <class T> static struct part<T> part_of(const struct logits_part *p) {
    return {(const T *)p->logits, p->r, p->ld, p->valid, p->first, p->targets};
}

static bool
part_fits(enum dtype t, const struct logits_part *p)
{
    return p->r >= 0 && p->r <= INT32_MAX && p->valid >= 0 && p->valid <= p->ld &&
           (t == DTYPE_F32 || t == DTYPE_BF16);
}

template <class T>
static cudaError_t max_of(cudaStream_t s, double *max, const struct logits_part *p)
{
    constexpr int wide = per_16_bytes<T>::value;
    CU_LAUNCH((max_kernel<T, wide>), dim3((unsigned)p->r), dim3(LOGITS_THREADS), 0, s, max,
              part_of<T>(p));
    return cudaGetLastError();
}

template <class T>
static cudaError_t sum_of(cudaStream_t s, double *sums, const double *max,
                          const struct logits_part *p)
{
    constexpr int wide = per_16_bytes<T>::value;
    CU_LAUNCH((sum_kernel<T, wide>), dim3((unsigned)p->r), dim3(LOGITS_THREADS), 0, s, sums, max,
              part_of<T>(p));
    return cudaGetLastError();
}

template <class T>
static cudaError_t finish(cudaStream_t s, double *nll, T *dlogits, const double *max,
                          const double *sums, double dloss, const struct logits_part *p)
{
    constexpr int wide = per_16_bytes<T>::value;
    auto kernel =
        logits_fit(dlogits, (const T *)p->logits) ? finish_kernel<T, wide> : finish_kernel<T, 1>;
    CU_LAUNCH(kernel, dim3((unsigned)p->r), dim3(LOGITS_THREADS), 0, s, nll, dlogits, max, sums,
              (float)dloss, part_of<T>(p));
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_ce_max(cudaStream_t s, enum dtype t, double *max,
                                   const struct logits_part *p)
{
    if (!part_fits(t, p)) {
        return cudaErrorInvalidValue;
    }
    if (p->r == 0) {
        return cudaSuccess;
    }
    return t == DTYPE_F32 ? max_of<float>(s, max, p) : max_of<__nv_bfloat16>(s, max, p);
}

extern "C" cudaError_t cuda_ce_sum(cudaStream_t s, enum dtype t, double *sums, const double *max,
                                   const struct logits_part *p)
{
    if (!part_fits(t, p)) {
        return cudaErrorInvalidValue;
    }
    if (p->r == 0) {
        return cudaSuccess;
    }
    return t == DTYPE_F32 ? sum_of<float>(s, sums, max, p) : sum_of<__nv_bfloat16>(s, sums, max, p);
}

extern "C" cudaError_t cuda_ce_finish(cudaStream_t s, enum dtype t, double *nll, void *dlogits,
                                      const double *max, const double *sums, double dloss,
                                      const struct logits_part *p)
{
    if (!part_fits(t, p)) {
        return cudaErrorInvalidValue;
    }
    if (p->r == 0) {
        return cudaSuccess;
    }
    return t == DTYPE_F32 ? finish(s, nll, (float *)dlogits, max, sums, dloss, p)
                          : finish(s, nll, (__nv_bfloat16 *)dlogits, max, sums, dloss, p);
}
