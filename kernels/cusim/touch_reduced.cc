#include <string.h>

#include "kernels/cusim/collective.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cusim
{

void touch_bytes(void *dst, const void *src, size_t bytes)
{
    memmove(dst, src, bytes);
}

void touch_poison(void *dst, size_t bytes)
{
    memset(dst, 0xFF, bytes);
}

static float as(float x)
{
    return x;
}
static double as(double x)
{
    return x;
}
static int64_t as(int32_t x)
{
    return x;
}
static int64_t as(int64_t x)
{
    return x;
}
static float as(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static float as(__half x)
{
    return __half2float(x);
}
static void put(float *to, float x)
{
    *to = x;
}
static void put(double *to, double x)
{
    *to = x;
}
static void put(int32_t *to, int64_t x)
{
    *to = (int32_t)x;
}
static void put(int64_t *to, int64_t x)
{
    *to = x;
}
static void put(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16(x);
}
static void put(__half *to, float x)
{
    *to = __float2half(x);
}

template <class A> static A join(A a, A b, int op)
{
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return b > a ? b : a;
    case ncclMin:
        return b < a ? b : a;
    default:
        return a + b;
    }
}

/* In the order of ranks. */
template <class T>
static void reduce(void *dst, const void *const *slots, int num, size_t first, size_t count, int op)
{
    for (size_t i = 0; i < count; i++) {
        auto sum = as(((const T *)slots[0])[first + i]);
        for (int r = 1; r < num; r++) {
            sum = join(sum, as(((const T *)slots[r])[first + i]), op);
        }
        put((T *)dst + i, op == ncclAvg ? sum / (decltype(sum))num : sum);
    }
}

void touch_reduced(void *dst, const void *const *slots, int num, size_t first, size_t count,
                   int type, int op)
{
    switch (type) {
    case ncclFloat64:
        return reduce<double>(dst, slots, num, first, count, op);
    case ncclInt32:
        return reduce<int32_t>(dst, slots, num, first, count, op);
    case ncclInt64:
        return reduce<int64_t>(dst, slots, num, first, count, op);
    case ncclBfloat16:
        return reduce<__nv_bfloat16>(dst, slots, num, first, count, op);
    case ncclFloat16:
        return reduce<__half>(dst, slots, num, first, count, op);
    default:
        return reduce<float>(dst, slots, num, first, count, op);
    }
}

} // namespace cusim
