/* Arithmetic, bits, cached loads and atomics. Approximations of the hardware are exact here:
 * tests/gpu has to measure those. Atomics are real ones and relaxed, as CUDA's are. */
#ifndef TANDEM_KERNELS_CUSIM_DEVICE_MATH_H
#define TANDEM_KERNELS_CUSIM_DEVICE_MATH_H

/* A fence orders nothing in a simulation that runs one thread at a time. */
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
/* The C library has names of its own that look like these. */
#define __expf(x) (expf(x))
#define __logf(x) (logf(x))
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float x)
{
    return 1 / x;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float __uint_as_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
template <class T> static inline T min(T a, T b)
{
    return a < b ? a : b;
}
template <class T> static inline T max(T a, T b)
{
    return a > b ? a : b;
}

static inline int atomicAdd(int *p, int v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
static inline unsigned atomicAdd(unsigned *p, unsigned v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
static inline unsigned atomicCAS(unsigned *p, unsigned want, unsigned v)
{
    __atomic_compare_exchange_n(p, &want, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return want;
}
static inline int atomicMax(int *p, int v)
{
    int old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < v &&
           !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

template <class F, class U> static inline F cusim_atomic_add(F *p, F v)
{
    U *bits = (U *)p;
    U old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    F was, sum;
    U next;
    do {
        memcpy(&was, &old, sizeof was);
        sum = was + v;
        memcpy(&next, &sum, sizeof next);
    } while (
        !__atomic_compare_exchange_n(bits, &old, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return was;
}
static inline float atomicAdd(float *p, float v)
{
    return cusim_atomic_add<float, uint32_t>(p, v);
}
static inline double atomicAdd(double *p, double v)
{
    return cusim_atomic_add<double, uint64_t>(p, v);
}

#endif
