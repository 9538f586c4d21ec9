/* One kernel for each thing that cubin.py tells apart; their names say what must be found. */
#include <cstdint>

extern "C" __global__ void probe_32(float *y, const float *x)
{
    y[threadIdx.x] = x[threadIdx.x] + 1;
}

extern "C" __global__ void probe_64(float2 *y, const float2 *x)
{
    float2 v = x[threadIdx.x];
    v.x += 1;
    y[threadIdx.x] = v;
}

extern "C" __global__ void __launch_bounds__(96) probe_128(float4 *y, const float4 *x)
{
    float4 v = x[threadIdx.x];
    v.x += 1;
    y[threadIdx.x] = v;
}

extern "C" __global__ void probe_local(float *y, const int *x, int n)
{
    float held[64];
    for (int i = 0; i < 64; i++) {
        held[i] = y[i * 32 + threadIdx.x];
    }
    for (int i = 0; i < n; i++) {
        held[x[i] & 63] += held[x[i + 1] & 63];
    }
    for (int i = 0; i < 64; i++) {
        y[i * 32 + threadIdx.x] = held[i];
    }
}

extern "C" __global__ void probe_double(double *y, const double *x)
{
    y[threadIdx.x] = x[threadIdx.x] * y[threadIdx.x] + 1.0;
}

extern "C" __global__ void probe_tensor(float *d, const uint32_t *a)
{
    __shared__ __align__(16) uint32_t s[1024];
    uint32_t at = (uint32_t)__cvta_generic_to_shared(s + threadIdx.x * 4);
    uint32_t r[4];
    float c[4] = {};
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 16;" ::"r"(at), "l"(a + threadIdx.x * 4)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[0]), "r"(r[1]));
    d[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}
