#include "plan/kernel_rates.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/device_types.h"

const char *const kernel_attention_names[] = {"own", "auto", "cudnn", NULL};
const char *const kernel_bound_names[NUM_KERNEL_BOUNDS] = {"compute", "memory", "launch",
                                                           "network"};

/* gemm: of the dense bf16 peak, a large product of random data. memory: of the datasheet's figure.
 * own_*: TFLOP/s of our mma.sync attention, heads up to 64 and wider. */
static const struct {
    const char *type;
    int multiprocessors;
    double gemm, memory, own_forward[2], own_backward[2];
    const char *gemm_source, *memory_source, *attention_source;
} table[] = {
    {"a100",
     108,
     0.90,
     0.85,
     {170, 190},
     {120, 140},
     "assumed: published products of 8192 reach 260 of 312",
     "assumed",
     "assumed: FlashAttention-2 on A100 (Dao 2023), less what ours does twice"},
    {"h100",
     132,
     0.83,
     0.90,
     {300, 365},
     {200, 240},
     "as the H200, the same chip",
     "as the H200",
     "docs/performance.md, by arithmetic; not measured"},
    {"h200",
     132,
     0.83,
     0.896,
     {300, 365},
     {200, 240},
     "seen on an H200: 769 to 798 TFLOP/s at 8192 x 8192 x 8192, bf16",
     "seen on an H200: 4.3 TB/s, a device copy",
     "docs/performance.md, by arithmetic; not measured"},
    {"b200",
     148,
     0.75,
     0.88,
     {300, 365},
     {200, 240},
     "assumed",
     "assumed",
     "as an H100: these kernels don't use what is new"},
    {"gb200",
     152,
     0.75,
     0.88,
     {300, 365},
     {200, 240},
     "assumed",
     "assumed",
     "as an H100: these kernels don't use what is new"},
};
#define NUM_TYPES (sizeof table / sizeof *table)
/* Of a GPU that isn't in it. */
#define OTHER_GEMM 0.70
#define OTHER_MEMORY 0.80
#define OTHER_FORWARD 0.30
#define OTHER_BACKWARD 0.15
#define OTHER_MULTIPROCESSORS 108
/* Of a GPU's fp32 peak, products without tensor cores, and attention by single products. */
#define FP32_GEMM 0.80
#define FP32_ATTENTION 0.20
/* Of a CPU device: docs/performance.md. */
#define CPU_GEMM 0.92
#define CPU_ATTENTION 0.50

static int find(const char *type)
{
    for (size_t i = 0; i < NUM_TYPES; i++) {
        if (strcmp(table[i].type, type) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Of the first rank's device: a gang is of one type. */
static const char *type_of_gang(const Plan *plan, const ClusterSpec *cluster)
{
    const RankPlacement *first = plan->n_placement > 0 ? plan->placement[0] : NULL;
    for (size_t i = 0; first && i < cluster->n_nodes; i++) {
        const NodeInfo *node = cluster->nodes[i];
        for (size_t j = 0; strcmp(node->name, first->node) == 0 && j < node->n_devices; j++) {
            if (node->devices[j]->index == first->device && node->devices[j]->type) {
                return node->devices[j]->type;
            }
        }
    }
    return "cpu";
}

static double memory_of(const ClusterSpec *cluster, const char *type)
{
    for (size_t i = 0; i < cluster->n_types; i++) {
        if (strcmp(cluster->types[i]->name, type) == 0 && cluster->types[i]->mem_bytes_per_s > 0) {
            return cluster->types[i]->mem_bytes_per_s;
        }
    }
    DeviceType t = DEVICE_TYPE__INIT;
    t.name = (char *)type;
    device_types_fill(&t);
    return t.mem_bytes_per_s;
}

static void fill_gpu(struct kernel_rates *r)
{
    int i = find(r->type);
    r->multiprocessors = i >= 0 ? table[i].multiprocessors : OTHER_MULTIPROCESSORS;
    r->gemm = !r->tensor_cores ? FP32_GEMM : i >= 0 ? table[i].gemm : OTHER_GEMM;
    r->uneven = r->tensor_cores ? 0.45 : 0.8;
    r->bytes_per_s *= i >= 0 ? table[i].memory : OTHER_MEMORY;
    r->link_bytes_per_s = 25e9;
    r->cudnn_narrow = 0.65;
    for (int j = 0; j < 2; j++) {
        bool known = i >= 0 && r->tensor_cores;
        double other = r->tensor_cores ? OTHER_FORWARD : FP32_ATTENTION;
        r->own_forward[j] = known ? table[i].own_forward[j] * 1e12 : other * r->peak;
        other = r->tensor_cores ? OTHER_BACKWARD : FP32_ATTENTION;
        r->own_backward[j] = known ? table[i].own_backward[j] * 1e12 : other * r->peak;
    }
    r->captured_s = 1.5e-6;
    r->direct_s = 2.5e-6;
    r->call_s = 4e-6;
    r->graph_s = 10e-6;
}

static void fill_cpu(struct kernel_rates *r)
{
    r->gemm = CPU_GEMM;
    r->uneven = 1;
    r->link_bytes_per_s = r->bytes_per_s;
    for (int j = 0; j < 2; j++) {
        r->own_forward[j] = r->own_backward[j] = CPU_ATTENTION * r->peak;
    }
}

int kernel_rates_find(struct kernel_rates *out, const Plan *plan, const ClusterSpec *cluster,
                      enum kernel_attention attention, struct error *err)
{
    struct kernel_rates r = {.type = type_of_gang(plan, cluster), .peak = plan->peak_flops};
    r.gpu = strcmp(plan->backend, "cuda") == 0;
    r.tensor_cores = r.gpu && strcmp(plan->spec->training->precision, "bf16") == 0;
    r.attention = r.tensor_cores ? attention : KERNEL_ATTENTION_OWN;
    r.bytes_per_s = memory_of(cluster, r.type);
    if (r.peak <= 0 || r.bytes_per_s <= 0) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "--kernels: devices of type %s: their %s isn't known, so no time can be "
                         "told; the cluster file's types say it: %s",
                         r.type, r.peak <= 0 ? "peak" : "memory's bandwidth",
                         r.peak > 0       ? "mem_bytes_per_s"
                         : r.tensor_cores ? "peak_flops_bf16"
                                          : "peak_flops_fp32");
    }
    if (r.gpu) {
        fill_gpu(&r);
    } else {
        fill_cpu(&r);
    }
    *out = r;
    return 0;
}

/* NVIDIA's figures for an H200, bf16, causal, 64 heads of 128 with 8 key heads, at T of 2048, 4096
 * and 8192; between them by the logarithm, below as if a share of each pass were lost. */
double kernel_rates_cudnn(const struct kernel_rates *r, double t, double head, bool backward)
{
    static const double forward_at[] = {484e12, 591e12, 644e12};
    static const double backward_at[] = {370e12, 474e12, 541e12};
    const double *at = backward ? backward_at : forward_at;
    double x = log2(t / 2048), rate;
    if (x <= 0) {
        rate = at[0] * 2 * t / (t + 2048);
    } else if (x >= 2) {
        rate = at[2];
    } else {
        int i = x >= 1;
        rate = at[i] + (at[i + 1] - at[i]) * (x - i);
    }
    return rate * (head <= 64 ? r->cudnn_narrow : 1) * r->peak / 989e12;
}

/* ---- in words ------------------------------------------------------------------------------- */

static void add(struct kernel_assumption *out, size_t *num, const char *what, const char *source,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void add(struct kernel_assumption *out, size_t *num, const char *what, const char *source,
                const char *fmt, ...)
{
    ASSERT(*num < KERNEL_ASSUMPTIONS_MAX);
    struct kernel_assumption *a = &out[(*num)++];
    va_list args;
    snprintf(a->what, sizeof a->what, "%s", what);
    va_start(args, fmt);
    vsnprintf(a->value, sizeof a->value, fmt, args);
    va_end(args);
    a->source = source;
}

static void list_attention(const struct kernel_rates *r, struct kernel_assumption *out, size_t *num)
{
    int i = find(r->type);
    const char *own = i >= 0 && r->tensor_cores ? table[i].attention_source : "assumed";
    if (r->attention != KERNEL_ATTENTION_OWN) {
        add(out, num, "attention forward, cuDNN", "NVIDIA's figures for an H200, heads of 128",
            "%.0f, %.0f, %.0f TFLOP/s at T 2k, 4k, 8k",
            kernel_rates_cudnn(r, 2048, 128, false) / 1e12,
            kernel_rates_cudnn(r, 4096, 128, false) / 1e12,
            kernel_rates_cudnn(r, 8192, 128, false) / 1e12);
    } else {
        add(out, num, "attention forward, ours", own, "%.3g TFLOP/s, heads up to 64: %.3g",
            r->own_forward[1] / 1e12, r->own_forward[0] / 1e12);
    }
    if (r->attention == KERNEL_ATTENTION_CUDNN) {
        add(out, num, "attention backward, cuDNN", "NVIDIA's figures for an H200, heads of 128",
            "%.0f, %.0f, %.0f TFLOP/s at T 2k, 4k, 8k",
            kernel_rates_cudnn(r, 2048, 128, true) / 1e12,
            kernel_rates_cudnn(r, 4096, 128, true) / 1e12,
            kernel_rates_cudnn(r, 8192, 128, true) / 1e12);
    } else {
        add(out, num, "attention backward, ours", own, "%.3g TFLOP/s, heads up to 64: %.3g",
            r->own_backward[1] / 1e12, r->own_backward[0] / 1e12);
    }
    if (r->attention != KERNEL_ATTENTION_OWN) {
        add(out, num, "cuDNN with heads up to 64", "assumed", "%.0f %% of that",
            100 * r->cudnn_narrow);
    }
}

static void list_cpu(const struct kernel_rates *r, struct kernel_assumption *out, size_t *num)
{
    const char *source = "docs/performance.md, measured on other hosts";
    add(out, num, "peak", "measured by tandem-probe, times the rank's threads", "%.3g GFLOP/s",
        r->peak / 1e9);
    add(out, num, "products", source, "%.0f %% of the peak", 100 * r->gemm);
    add(out, num, "attention", source, "%.0f %% of the peak", 100 * CPU_ATTENTION);
    add(out, num, "memory", "assumed", "%.3g GB/s a rank", r->bytes_per_s / 1e9);
}

size_t kernel_rates_list(const struct kernel_rates *r,
                         struct kernel_assumption out[KERNEL_ASSUMPTIONS_MAX])
{
    size_t num = 0;
    int i = find(r->type);
    if (!r->gpu) {
        list_cpu(r, out, &num);
        return num;
    }
    bool known = i >= 0 && r->tensor_cores;
    add(out, &num, "peak", "datasheet, dense", "%.4g TFLOP/s", r->peak / 1e12);
    add(out, &num, "products, before tiles and waves", known ? table[i].gemm_source : "assumed",
        "%.0f %% of the peak", 100 * r->gemm);
    add(out, &num, "tiles and waves", "assumed: the best of tiles of 64 to 256, splits of k",
        "over %d multiprocessors", r->multiprocessors);
    add(out, &num, "rows not at multiples of 16 bytes",
        "assumed: no TMA; a vocabulary padded to 64 is known to be worth 25 % of a GPT-2 step",
        "%.0f %% of that", 100 * r->uneven);
    list_attention(r, out, &num);
    add(out, &num, "memory", i >= 0 ? table[i].memory_source : "assumed", "%.3g TB/s",
        r->bytes_per_s / 1e12);
    add(out, &num, "beginning and end of a kernel", "assumed",
        "%.1f us in a graph, %.1f us by itself", r->captured_s * 1e6, r->direct_s * 1e6);
    add(out, &num, "host", "assumed", "%.0f us a launch, %.0f us a graph", r->call_s * 1e6,
        r->graph_s * 1e6);
    add(out, &num, "collectives", "the cost model (docs/planning.md); no share of it taken off",
        "bytes / link + steps x latency");
    return num;
}
