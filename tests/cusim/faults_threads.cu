/* Mistakes of threads among each other. */
#include "tests/cusim/faults.h"

/* ---- barriers ---- */

static __global__ void divergent_barrier(float *out, int right)
{
    if (right || threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}

static __global__ void barrier_after_return(float *out, int right)
{
    out[threadIdx.x] = 1;
    if (!right && threadIdx.x >= 40) {
        return;
    }
    __syncthreads();
}

static __global__ void missing_lanes(float *out, int right)
{
    float x = 1;
    if (right || threadIdx.x % 32 < 16) {
        x = __shfl_sync(CU_ALL_LANES, x, 3);
    }
    __syncthreads();
    out[threadIdx.x] = x;
}

/* ---- masks ---- */

static __global__ void lane_outside_mask(float *out, int right)
{
    unsigned mask = right ? CU_ALL_LANES : 0xffffu;
    out[threadIdx.x] = __shfl_sync(mask, 1.0f, 0);
}

static __global__ void exited_lanes(float *out, int right)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x % 32 >= 16) {
        return;
    }
    out[threadIdx.x] = __shfl_sync(right ? 0xffffu : CU_ALL_LANES, 1.0f, 0);
}

static __global__ void reads_outside_mask(float *out, int right)
{
    float x = 1;
    if (threadIdx.x % 32 < 16) {
        x = __shfl_sync(0xffffu, x, right ? 15 : 16);
    }
    out[threadIdx.x] = x;
}

static __global__ void divergent_warp(float *out, int right)
{
    float x = 1;
    if (right || threadIdx.x % 2 == 0) {
        x = __shfl_xor_sync(CU_ALL_LANES, x, 1);
    } else {
        x = (float)(__ballot_sync(CU_ALL_LANES, 1) != 0);
    }
    out[threadIdx.x] = x;
}

/* ---- races in shared memory ---- */

static __global__ void no_barrier(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    x[threadIdx.x] = 1;
    if (right) {
        __syncthreads();
    }
    out[threadIdx.x] = x[NUM_THREADS - 1 - threadIdx.x];
}

/* The second round writes what the first may read still. */
static __global__ void no_second_barrier(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    float sum = 0;
    for (int round = 0; round < 3; round++) {
        x[threadIdx.x] = (float)round;
        __syncthreads();
        sum += x[(threadIdx.x + 33) % NUM_THREADS];
        if (right) {
            __syncthreads();
        }
    }
    out[threadIdx.x] = sum;
}

static __global__ void no_syncwarp(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    x[threadIdx.x] = 1;
    if (right) {
        __syncwarp();
    }
    out[threadIdx.x] = x[threadIdx.x ^ 1];
}

/* A shuffle brings lanes together, but orders no memory. */
static __global__ void shuffle_as_fence(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    x[threadIdx.x] = 1;
    float all = __shfl_sync(CU_ALL_LANES, 1.0f, 0);
    if (right) {
        __syncwarp();
    }
    out[threadIdx.x] = x[threadIdx.x ^ 1] * all;
}

/* It would be right if new memory were zero, or what the block before has left there. */
static __global__ void shared_not_written(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    if (right || threadIdx.x != 5 || blockIdx.x == 0) {
        x[threadIdx.x] = 0;
    }
    __syncthreads();
    out[blockIdx.x * NUM_THREADS + threadIdx.x] = x[threadIdx.x] + 1;
}

/* ---- races between blocks ---- */

static __global__ void no_atomic(float *out, int right)
{
    if (right) {
        atomicAdd(out, 1.0f);
    } else {
        out[0] += 1;
    }
}

/* The barrier is each block's own. */
static __global__ void barrier_for_the_grid(float *out, int right)
{
    if (threadIdx.x == 0) {
        out[blockIdx.x] = 1;
    }
    __syncthreads();
    unsigned from = right ? blockIdx.x : (blockIdx.x + 1) % gridDim.x;
    if (threadIdx.x == 32 && out[from] > 2) {
        out[blockIdx.x] = 2;
    }
}

/* ---- asynchronous copies ---- */

/* out [NUM_THREADS] holds ones; each thread brings four of them, another one reads them. */
static __device__ void bring(float *x, const float *from, bool wait, bool barrier)
{
    if (threadIdx.x < NUM_THREADS / 4) {
        cu_cp_async16(x + threadIdx.x * 4, from + threadIdx.x * 4, true);
    }
    cu_cp_async_commit();
    if (wait) {
        cu_cp_async_wait<0>();
    }
    if (barrier) {
        __syncthreads();
    }
}

static __device__ void fill_ones(float *out)
{
    out[threadIdx.x] = 1;
    __syncthreads();
}

static __global__ void copy_without_wait(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    fill_ones(out);
    bring(x, out, right, true);
    float got = x[NUM_THREADS - 1 - threadIdx.x];
    __syncthreads();
    cu_cp_async_wait<0>();
    out[threadIdx.x] = got;
}

static __global__ void copy_without_barrier(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    fill_ones(out);
    bring(x, out, true, right);
    float got = x[NUM_THREADS - 1 - threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = got;
}

static __global__ void copy_left_behind(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    fill_ones(out);
    bring(x, out, right, false);
}

#define RUN(name, num_blocks, num_out, want)                                                       \
    static int run_##name(int right)                                                               \
    {                                                                                              \
        return bench_run(name, right, num_blocks, num_out, want);                                  \
    }

RUN(divergent_barrier, 1, NUM_THREADS, 1)
RUN(barrier_after_return, 1, NUM_THREADS, 1)
RUN(missing_lanes, 1, NUM_THREADS, 1)
RUN(lane_outside_mask, 1, NUM_THREADS, 1)
RUN(exited_lanes, 1, NUM_THREADS, 1)
RUN(reads_outside_mask, 1, NUM_THREADS, 1)
RUN(divergent_warp, 1, NUM_THREADS, 1)
RUN(no_barrier, 1, NUM_THREADS, 1)
RUN(no_second_barrier, 1, NUM_THREADS, 3)
RUN(no_syncwarp, 1, NUM_THREADS, 1)
RUN(shuffle_as_fence, 1, NUM_THREADS, 1)
RUN(shared_not_written, 2, 2 * NUM_THREADS, 1)
RUN(no_atomic, 5, 1, 5 * NUM_THREADS)
RUN(barrier_for_the_grid, 5, 5, 1)
RUN(copy_without_wait, 1, NUM_THREADS, 1)
RUN(copy_without_barrier, 1, NUM_THREADS, 1)
RUN(copy_left_behind, 1, NUM_THREADS, 1)

const struct fault thread_faults[] = {
    {"divergent_barrier", run_divergent_barrier},
    {"barrier_after_return", run_barrier_after_return},
    {"missing_lanes", run_missing_lanes},
    {"lane_outside_mask", run_lane_outside_mask},
    {"exited_lanes", run_exited_lanes},
    {"reads_outside_mask", run_reads_outside_mask},
    {"divergent_warp", run_divergent_warp},
    {"no_barrier", run_no_barrier},
    {"no_second_barrier", run_no_second_barrier},
    {"no_syncwarp", run_no_syncwarp},
    {"shuffle_as_fence", run_shuffle_as_fence},
    {"shared_not_written", run_shared_not_written},
    {"no_atomic", run_no_atomic},
    {"barrier_for_the_grid", run_barrier_for_the_grid},
    {"copy_without_wait", run_copy_without_wait},
    {"copy_without_barrier", run_copy_without_barrier},
    {"copy_left_behind", run_copy_left_behind},
    {nullptr, nullptr},
};
