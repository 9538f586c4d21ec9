/* Mistakes with memory: beyond it, beside its alignment, in the wrong place, no longer there. */
#include "tests/cusim/faults.h"

#include "kernels/cuda/vec.cuh"
#include "kernels/cusim/control.h"

/* ---- beyond ---- */

static __global__ void shared_overrun(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    x[threadIdx.x] = 1;
    __syncthreads();
    if (!right && threadIdx.x == 0) {
        volatile float *end = x + NUM_THREADS;
        end[0] = 1;
    }
    out[threadIdx.x] = x[threadIdx.x];
}

static __global__ void global_overrun(float *out, int right)
{
    out[threadIdx.x + (right ? 0 : 1)] = 1;
}

static __global__ void dynamic_kernel(float *out, int right)
{
    CU_DYN_SHARED(float, x);
    x[threadIdx.x + (right ? 0 : 1)] = 1;
    out[threadIdx.x] = 1;
}

static int run_dynamic_overrun(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    CU_LAUNCH(dynamic_kernel, dim3(1), dim3(NUM_THREADS), NUM_THREADS * sizeof(float), b.s,
              b.device, right);
    bench_fetch(&b);
    int rc = bench_check(b.host, NUM_THREADS, 1);
    bench_close(&b);
    return rc;
}

static int run_no_dynamic(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    CU_LAUNCH(dynamic_kernel, dim3(1), dim3(NUM_THREADS), right ? NUM_THREADS * sizeof(float) : 0,
              b.s, b.device, 1);
    bench_close(&b);
    return 0;
}

static int run_copy_overrun(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    must(cudaMemsetAsync(b.device, 0, b.bytes, b.s));
    must(cudaMemcpyAsync(b.host, b.device, b.bytes + (right ? 0 : 4), cudaMemcpyDeviceToHost, b.s));
    bench_close(&b);
    return 0;
}

static __global__ void ones(float *out, int)
{
    out[threadIdx.x] = 1;
}

/* A pointer that somebody kept. */
static __global__ void ones_there(float *const *where)
{
    (*where)[threadIdx.x] = 1;
}

static int run_use_after_free(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    float **kept;
    float *gone;
    must(cudaMallocHost((void **)&kept, sizeof *kept));
    must(cudaMalloc((void **)&gone, b.bytes));
    *kept = right ? b.device : gone;
    must(cudaFree(gone));
    CU_LAUNCH(ones_there, dim3(1), dim3(NUM_THREADS), 0, b.s, (float *const *)kept);
    bench_fetch(&b);
    int rc = bench_check(b.host, NUM_THREADS, 1);
    must(cudaFreeHost(kept));
    bench_close(&b);
    return rc;
}

static __global__ void too_much_kernel(float *out, int)
{
    CU_SHARED(float, x, [12000]);
    CU_SHARED(float, y, [300]);
    x[threadIdx.x] = 1;
    y[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = y[threadIdx.x];
}

static int run_too_much_shared(int right)
{
    return bench_run(right ? ones : too_much_kernel, right, 1, NUM_THREADS, 1);
}

/* ---- alignment ---- */

static __global__ void misaligned_load(float *out, int right)
{
    out[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        vec<float, 4> x = vec_load<float, 4>(out + (right ? 4 : 1));
        out[0] = x.v[0];
    }
}

static __global__ void misaligned_cast(float *out, int right)
{
    out[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        const float4 *x = (const float4 *)(out + (right ? 4 : 1));
        out[0] = x->y;
    }
}

static __global__ void misaligned_copy(float *out, int right)
{
    CU_SHARED(float, x, [NUM_THREADS]);
    out[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        cu_cp_async16(x, out + (right ? 4 : 2), true);
        cu_cp_async_wait<0>();
        cu_cp_async_commit();
        cu_cp_async_wait<0>();
        out[0] = x[0];
    }
}

static __global__ void misaligned_ldmatrix(float *out, int right)
{
    CU_SHARED(float, x, [32 * 8]);
    for (int i = (int)threadIdx.x; i < 32 * 8; i += NUM_THREADS) {
        x[i] = 0;
    }
    __syncthreads();
    uint32_t r[4];
    cu_ldmatrix_x4(r, x + threadIdx.x % 31 * 8 + (right ? 0 : 1));
    out[threadIdx.x] = r[0] == 0 ? 1.0f : 2.0f;
}

/* ---- in the wrong place ---- */

static int run_host_pointer(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    float local[NUM_THREADS];
    CU_LAUNCH(ones, dim3(1), dim3(NUM_THREADS), 0, b.s, right ? b.device : local, 1);
    bench_close(&b);
    return 0;
}

static int run_wrong_direction(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    enum cudaMemcpyKind kind = right ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    must(cudaMemcpyAsync(b.host, b.device, b.bytes, kind, b.s));
    bench_close(&b);
    return 0;
}

static int run_host_touches_device(int right)
{
    cusim_protect();
    struct bench b = bench_open(NUM_THREADS);
    CU_LAUNCH(ones, dim3(1), dim3(NUM_THREADS), 0, b.s, b.device, 1);
    bench_fetch(&b);
    int rc = bench_check(right ? b.host : b.device, NUM_THREADS, 1);
    bench_close(&b);
    return rc;
}

static __global__ void add_one(float *out, int)
{
    out[threadIdx.x] += 1;
}

/* It would be right if new memory were zero. */
static int run_device_not_written(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    if (right) {
        must(cudaMemsetAsync(b.device, 0, b.bytes, b.s));
    }
    CU_LAUNCH(add_one, dim3(1), dim3(NUM_THREADS), 0, b.s, b.device, 1);
    bench_fetch(&b);
    int rc = bench_check(b.host, NUM_THREADS, 1);
    bench_close(&b);
    return rc;
}

/* ---- launches ---- */

static int run_own_stream(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    CU_LAUNCH(ones, dim3(1), dim3(NUM_THREADS), 0, right ? b.s : nullptr, b.device, 1);
    bench_close(&b);
    return 0;
}

static int run_odd_block(int right)
{
    struct bench b = bench_open(NUM_THREADS);
    CU_LAUNCH(ones, dim3(1), dim3(right ? 32 : 33), 0, b.s, b.device, 1);
    bench_close(&b);
    return 0;
}

#define RUN(name)                                                                                  \
    static int run_##name(int right)                                                               \
    {                                                                                              \
        return bench_run(name, right, 1, NUM_THREADS, 1);                                          \
    }

RUN(shared_overrun)
RUN(global_overrun)
RUN(misaligned_load)
RUN(misaligned_cast)
RUN(misaligned_copy)
RUN(misaligned_ldmatrix)

const struct fault memory_faults[] = {
    {"shared_overrun", run_shared_overrun},
    {"global_overrun", run_global_overrun},
    {"dynamic_overrun", run_dynamic_overrun},
    {"no_dynamic", run_no_dynamic},
    {"copy_overrun", run_copy_overrun},
    {"use_after_free", run_use_after_free},
    {"too_much_shared", run_too_much_shared},
    {"misaligned_load", run_misaligned_load},
    {"misaligned_cast", run_misaligned_cast},
    {"misaligned_copy", run_misaligned_copy},
    {"misaligned_ldmatrix", run_misaligned_ldmatrix},
    {"host_pointer", run_host_pointer},
    {"wrong_direction", run_wrong_direction},
    {"host_touches_device", run_host_touches_device},
    {"device_not_written", run_device_not_written},
    {"own_stream", run_own_stream},
    {"odd_block", run_odd_block},
    {nullptr, nullptr},
};
