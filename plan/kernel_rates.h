/* What a device is taken to reach: every assumption behind a predicted time, in one table, each
 * with where it comes from. Nothing here was measured by tandem unless it says so. */
#ifndef TANDEM_PLAN_KERNEL_RATES_H
#define TANDEM_PLAN_KERNEL_RATES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "plan/launches.h"

/* As TANDEM_CUDA_ATTENTION: our own kernels, cuDNN's forward pass, both of cuDNN's. */
enum kernel_attention { KERNEL_ATTENTION_OWN, KERNEL_ATTENTION_AUTO, KERNEL_ATTENTION_CUDNN };
extern const char *const kernel_attention_names[]; /* ends with NULL */

struct kernel_rates {
    const char *type;       /* of the device, as the cluster calls it; borrowed */
    bool gpu, tensor_cores; /* bf16 */
    double peak;            /* FLOP/s, dense, of the job's precision */
    int multiprocessors;
    /* Shares of the peak: of a large product, before tiles and waves; of that, of one whose rows
     * don't lie at multiples of 16 bytes. */
    double gemm, uneven;
    double bytes_per_s;      /* of the device's memory, attainable */
    double link_bytes_per_s; /* to the host */
    /* FLOP/s of attention of long causal sequences, 2 products forward and 5 backward; for heads up
     * to 64 and wider ones; and cuDNN's with heads of 128. */
    enum kernel_attention attention;
    double own_forward[2], own_backward[2];
    double cudnn_narrow; /* of that, where heads are of 64 or less */
    /* A kernel's beginning and end in its stream, in a graph and by itself. */
    double captured_s, direct_s;
    /* What it costs the host to launch a kernel, and a graph. */
    double call_s, graph_s;
};

/* Fails where nothing can be said: the device's peak isn't known. cluster: the plan's. */
int kernel_rates_find(struct kernel_rates *out, const Plan *plan, const ClusterSpec *cluster,
                      enum kernel_attention attention, struct error *err);

/* FLOP/s of cuDNN's attention with sequences of t. */
double kernel_rates_cudnn(const struct kernel_rates *r, double t, double head, bool backward);

struct kernel_assumption {
    char what[64], value[64];
    const char *source;
};
#define KERNEL_ASSUMPTIONS_MAX 12
size_t kernel_rates_list(const struct kernel_rates *r,
                         struct kernel_assumption out[KERNEL_ASSUMPTIONS_MAX]);

enum kernel_bound {
    KERNEL_BOUND_COMPUTE,
    KERNEL_BOUND_MEMORY,
    KERNEL_BOUND_LAUNCH,
    KERNEL_BOUND_NETWORK,
    NUM_KERNEL_BOUNDS,
};
extern const char *const kernel_bound_names[NUM_KERNEL_BOUNDS];

/* Seconds in its stream: the larger of FLOPs / attainable peak and bytes / attainable bandwidth,
 * and the fixed part of each kernel. Collectives: as plan/cost.h has them. */
double kernel_time(const struct kernel_rates *r, const Plan *plan, const struct launch *l,
                   enum kernel_bound *bound);

/* Share of the attainable rate that a product has for its tiles, its waves over the multiprocessors
 * and the ends of its rows; 1 on CPU devices. */
double kernel_gemm_share(const struct kernel_rates *r, int64_t m, int64_t n, int64_t k);

#endif
