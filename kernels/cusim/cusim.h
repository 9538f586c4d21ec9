/* CUDA's device language for a host compiler: what cu.h includes where nvcc isn't the compiler.
 * Types and arithmetic are CUDA's own headers'; what threads do together is block.h's.
 *
 * In C++17, since it has to be what nvcc reads. */
#ifndef TANDEM_KERNELS_CUSIM_CUSIM_H
#define TANDEM_KERNELS_CUSIM_CUSIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cusim/block.h"
#include "kernels/cusim/engine.h"
#include "kernels/cusim/machine.h"

#undef __device__
#undef __global__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#define __device__
#define __global__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ write_CU_SHARED_instead

#define threadIdx (::cusim::here.tid)
#define blockIdx (::cusim::here.bid)
#define blockDim (::cusim::here.bdim)
#define gridDim (::cusim::here.gdim)

/* CU_SHARED(float, part, [32]): part is the block's, and whatever lay there. */
#define CU_SHARED(type, name, dims)                                                                \
    typedef type name##_array dims;                                                                \
    static ::cusim::shared_slot name##_slot;                                                       \
    name##_array &name = *(name##_array *)::cusim::shared_array(                                   \
        &name##_slot, sizeof(name##_array), alignof(name##_array))
#define CU_DYN_SHARED(type, name) type *name = (type *)::cusim::shared_dynamic()

/* Arguments are converted to what the kernel takes, and kept until the stream comes to it. */
#define CU_LAUNCH(kernel, grid, block, bytes, stream, ...)                                         \
    ::cusim::launch_kernel((kernel), (grid), (block), (bytes), (stream), #kernel, __VA_ARGS__)

namespace cusim
{

/* Plain data: a copy of its bytes is a copy of it, as a launch takes it. */
template <class... P> struct pack {
    template <class F, class... D> void call(F f, D... done) const
    {
        f(done...);
    }
};
template <class H, class... T> struct pack<H, T...> {
    static_assert(std::is_trivially_copyable<H>::value, "a kernel's arguments are plain data");
    H head;
    struct pack<T...> tail;
    template <class F, class... D> void call(F f, D... done) const
    {
        tail.call(f, done..., head);
    }
};
inline pack<> packed()
{
    return {};
}
template <class H, class... T> pack<H, T...> packed(H head, T... tail)
{
    return {head, packed(tail...)};
}

template <class... P> struct bound_kernel {
    void (*kernel)(P...);
    struct pack<P...> args;
    static void run(const void *self)
    {
        const struct bound_kernel *b = (const struct bound_kernel *)self;
        b->args.call(b->kernel);
    }
};

template <class T> void check_argument(T, const char *, int)
{
}
template <class T> void check_argument(T *pointer, const char *kernel, int number)
{
    machine_check_pointer((const void *)pointer, kernel, number);
}

template <class... P, class... A>
void launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes, cudaStream_t stream,
                   const char *name, A... args)
{
    static_assert(sizeof...(P) == sizeof...(A), "a kernel takes another number of arguments");
    static_assert(sizeof(struct pack<P...>) <= 4096, "a kernel's arguments have 4096 bytes");
    int number = 0;
    (check_argument(args, name, number++), ...);
    struct bound_kernel<P...> bound = {
        kernel, packed(static_cast<P>(args)...)
    };
    machine_launch({grid, block, bytes, name, bound_kernel<P...>::run, nullptr},
                   (const void *)kernel, stream, &bound, sizeof bound);
}

} // namespace cusim

#include "kernels/cusim/device_math.h"
#include "kernels/cusim/device_warp.h"

#endif
