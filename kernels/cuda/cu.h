/* The only header of CUDA that a .cu file includes: nvcc's device language, or the same for a host
 * compiler (kernels/cusim), where tests run it.
 *
 * So device code keeps to macros for what isn't C++ (CU_SHARED, CU_DYN_SHARED, CU_LAUNCH) and to
 * the wrappers below for what is PTX. Rules: every launch takes a stream that was made; blocks are
 * multiples of 32 in x; no return before a barrier; nothing is allocated or synchronised. */
#ifndef TANDEM_KERNELS_CUDA_CU_H
#define TANDEM_KERNELS_CUDA_CU_H

#ifdef __CUDACC__

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* CU_SHARED(float, part, [32]): aligned to 16 bytes. */
#define CU_SHARED(type, name, dims) __shared__ __align__(16) type name dims
/* Aligned to 128 bytes where the kernel has no other shared memory, as all have that count on it. */
#define CU_DYN_SHARED(type, name)                                                                  \
    extern __shared__ __align__(128) unsigned char cu_dyn_shared[];                                 \
    type *name = reinterpret_cast<type *>(cu_dyn_shared)
#define CU_LAUNCH(kernel, grid, block, bytes, stream, ...)                                         \
    (kernel)<<<(grid), (block), (bytes), (stream)>>>(__VA_ARGS__)

/* D [16,8] f32 += A [16,16] bf16, row by row, * B [16,8] bf16, column by column. */
static __device__ __forceinline__ void cu_mma_16816_bf16(float d[4], const uint32_t a[4],
                                                         const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Where something lies in shared memory, to reckon with: one register. */
typedef uint32_t cu_shared_at;

static __device__ __forceinline__ cu_shared_at cu_shared_of(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8 x 8 matrices of 16-bit numbers from shared memory; lane i says where row i lies. */
static __device__ __forceinline__ void cu_ldmatrix_x4(uint32_t r[4], cu_shared_at at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void cu_ldmatrix_x4_trans(uint32_t r[4], cu_shared_at at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* 16 bytes into shared memory, in the background; zeros where !full. */
static __device__ __forceinline__ void cu_cp_async16(cu_shared_at at, const void *global, bool full)
{
    int bytes = full ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(global), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void cu_ldmatrix_x4(uint32_t r[4], const void *row)
{
    cu_ldmatrix_x4(r, cu_shared_of(row));
}
static __device__ __forceinline__ void cu_ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    cu_ldmatrix_x4_trans(r, cu_shared_of(row));
}
static __device__ __forceinline__ void cu_cp_async16(void *shared, const void *global, bool full)
{
    cu_cp_async16(cu_shared_of(shared), global, full);
}

static __device__ __forceinline__ void cu_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until no more than the last N groups are under way. */
template <int N> static __device__ __forceinline__ void cu_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* 2^x as fast as it goes: 2 units in the last place, and 0 where that isn't a normal number. */
static __device__ __forceinline__ float cu_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x, but the compiler doesn't know: what is computed from it isn't kept in registers from one turn
 * of a loop to the next. */
template <class T> static __device__ __forceinline__ T cu_anew(T x)
{
    static_assert(sizeof(T) == 4, "one register");
    asm volatile("" : "+r"(x));
    return x;
}

#define CU_CHECK_ALIGNED(p, bytes) ((void)0)

#else

#include "kernels/cusim/cusim.h"

#define CU_CHECK_ALIGNED(p, bytes)                                                                 \
    ((uintptr_t)(p) % (bytes) == 0                                                                 \
         ? (void)0                                                                                 \
         : ::cusim::fail("%s:%d: misaligned access of %d bytes at %p", __FILE__, __LINE__,         \
                         (int)(bytes), (const void *)(p)))

#endif

#define CU_WARP 32
#define CU_ALL_LANES 0xffffffffu

#endif
