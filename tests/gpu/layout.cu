/* gpu_layout: do cu.h's wrappers mean on this device what the kernels take them to mean? Which lane
 * holds what of mma.m16n8k16's matrices, which rows ldmatrix reads, what cp.async leaves where it
 * copies nothing, and how good 2^x is. Prints a JSON object for each; exits 1 where one is wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/cu.h"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        cudaError_t must_error = (call);                                                           \
        if (must_error != cudaSuccess) {                                                           \
            fprintf(stderr, "gpu_layout: %s: %s\n", #call, cudaGetErrorString(must_error));        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MMA_NUMBERS (16 * 8)
#define LD_NUMBERS (2 * 4 * CU_WARP)
#define COPY_NUMBERS (8 * CU_WARP)
#define NUM_POWERS (8 * CU_WARP)

static __device__ uint32_t bf16_bits(int x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn((float)x));
}

static __device__ uint32_t two(int low, int high)
{
    return bf16_bits(low) | bf16_bits(high) << 16;
}

/* a[i][k] and b[k][j]: small whole numbers without a pattern, so that no two products of other
 * places are the same; sums are exact. */
static __host__ __device__ int of_a(int i, int k)
{
    return (i * 7 + k * 13 + i * k) % 31 - 15;
}
static __host__ __device__ int of_b(int k, int j)
{
    return (k * 11 + j * 5 + k * j * 3) % 29 - 14;
}

/* Fragments as PTX describes them. */
static __global__ void mma_kernel(float *out)
{
    int lane = (int)threadIdx.x, row = lane / 4, pair = lane % 4 * 2;
    float d[4] = {};
    uint32_t a[4], b[2];
    a[0] = two(of_a(row, pair), of_a(row, pair + 1));
    a[1] = two(of_a(row + 8, pair), of_a(row + 8, pair + 1));
    a[2] = two(of_a(row, pair + 8), of_a(row, pair + 9));
    a[3] = two(of_a(row + 8, pair + 8), of_a(row + 8, pair + 9));
    b[0] = two(of_b(pair, row), of_b(pair + 1, row));
    b[1] = two(of_b(pair + 8, row), of_b(pair + 9, row));
    cu_mma_16816_bf16(d, a, b);
    out[row * 8 + pair] = d[0];
    out[row * 8 + pair + 1] = d[1];
    out[(row + 8) * 8 + pair] = d[2];
    out[(row + 8) * 8 + pair + 1] = d[3];
}

static bool mma_is_right(const float *out)
{
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            int sum = 0;
            for (int k = 0; k < 16; k++) {
                sum += of_a(i, k) * of_b(k, j);
            }
            if (out[i * 8 + j] != (float)sum) {
                return false;
            }
        }
    }
    return true;
}

/* Row r of 8 x 8 matrix m holds 64 m + 8 r + column. Lane l gives row l % 8 of matrix l / 8. */
static __global__ void ldmatrix_kernel(float *out)
{
    CU_SHARED(uint16_t, rows, [CU_WARP * 8]);
    int lane = (int)threadIdx.x;
    for (int i = 0; i < 8; i++) {
        rows[lane * 8 + i] = (uint16_t)(lane * 8 + i);
    }
    __syncwarp();
    uint32_t plain[4], turned[4];
    cu_ldmatrix_x4(plain, &rows[lane * 8]);
    cu_ldmatrix_x4_trans(turned, &rows[lane * 8]);
    for (int m = 0; m < 4; m++) {
        out[m * CU_WARP + lane] = (float)plain[m];
        out[(4 + m) * CU_WARP + lane] = (float)turned[m];
    }
}

/* Below 2^24 every register's two numbers are exact in a float. */
static bool ldmatrix_is_right(const float *out)
{
    for (int m = 0; m < 4; m++) {
        for (int lane = 0; lane < CU_WARP; lane++) {
            int row = lane / 4, pair = lane % 4 * 2;
            int plain = 64 * m + 8 * row + pair;
            int turned = 64 * m + 8 * pair + row;
            if (out[m * CU_WARP + lane] != (float)(plain + (plain + 1) * 65536) ||
                out[(4 + m) * CU_WARP + lane] != (float)(turned + (turned + 8) * 65536)) {
                return false;
            }
        }
    }
    return true;
}

/* Every third lane copies nothing: zeros, in a place that held something else. */
static __global__ void copy_kernel(float *out, const uint16_t *from)
{
    CU_SHARED(uint16_t, to, [COPY_NUMBERS]);
    int lane = (int)threadIdx.x;
    for (int i = 0; i < 8; i++) {
        to[lane * 8 + i] = 7;
    }
    __syncwarp();
    cu_cp_async16(&to[lane * 8], from + lane * 8, lane % 3 != 0);
    cu_cp_async_commit();
    cu_cp_async_wait<0>();
    __syncwarp();
    int other = (lane + 1) % CU_WARP;
    for (int i = 0; i < 8; i++) {
        out[other * 8 + i] = (float)to[other * 8 + i];
    }
}

static bool copy_is_right(const float *out)
{
    for (int i = 0; i < COPY_NUMBERS; i++) {
        if (out[i] != (i / 8 % 3 != 0 ? (float)(i + 100) : 0.0f)) {
            return false;
        }
    }
    return true;
}

static __global__ void power_kernel(float *out)
{
    for (int i = 0; i < 8; i++) {
        int at = (int)threadIdx.x * 8 + i;
        out[at] = cu_exp2(-(float)at / 2.03f);
    }
}

static bool powers_are_right(const float *out)
{
    for (int i = 0; i < NUM_POWERS; i++) {
        double want = exp2((double)(-(float)i / 2.03f));
        if (!(fabs((double)out[i] - want) <= 1e-6 * want + 0x1p-126)) {
            return false;
        }
    }
    return true;
}

static bool report(const char *name, bool right)
{
    printf("{\"row\": \"layout\", \"name\": \"%s\", \"right\": %s}\n", name,
           right ? "true" : "false");
    return right;
}

int main()
{
    cudaStream_t s;
    float *mem = nullptr;
    uint16_t *numbers = nullptr, host_numbers[COPY_NUMBERS];
    float out[MMA_NUMBERS + LD_NUMBERS + COPY_NUMBERS + NUM_POWERS];
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&mem, sizeof out));
    MUST(cudaMalloc((void **)&numbers, sizeof host_numbers));
    for (int i = 0; i < COPY_NUMBERS; i++) {
        host_numbers[i] = (uint16_t)(i + 100);
    }
    MUST(cudaMemcpyAsync(numbers, host_numbers, sizeof host_numbers, cudaMemcpyHostToDevice, s));
    float *ld = mem + MMA_NUMBERS, *copied = ld + LD_NUMBERS, *powers = copied + COPY_NUMBERS;
    CU_LAUNCH(mma_kernel, 1, CU_WARP, 0, s, mem);
    CU_LAUNCH(ldmatrix_kernel, 1, CU_WARP, 0, s, ld);
    CU_LAUNCH(copy_kernel, 1, CU_WARP, 0, s, copied, numbers);
    CU_LAUNCH(power_kernel, 1, CU_WARP, 0, s, powers);
    MUST(cudaGetLastError());
    MUST(cudaMemcpyAsync(out, mem, sizeof out, cudaMemcpyDeviceToHost, s));
    MUST(cudaStreamSynchronize(s));
    bool right = report("mma.m16n8k16", mma_is_right(out));
    right = report("ldmatrix.x4", ldmatrix_is_right(out + MMA_NUMBERS)) && right;
    right = report("cp.async 16", copy_is_right(out + MMA_NUMBERS + LD_NUMBERS)) && right;
    right = report("ex2.approx", powers_are_right(out + MMA_NUMBERS + LD_NUMBERS + COPY_NUMBERS)) &&
            right;
    MUST(cudaFree(mem));
    MUST(cudaFree(numbers));
    MUST(cudaStreamDestroy(s));
    return right ? 0 : 1;
}
