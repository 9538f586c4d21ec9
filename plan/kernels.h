/* The launches of a step, like ones in one row, with predicted times; and what they come to: the
 * step's three streams and its host are played through twice, the second time from where the first
 * ended, so that what overlaps does. A prediction: nothing here has run. */
#ifndef TANDEM_PLAN_KERNELS_H
#define TANDEM_PLAN_KERNELS_H

#include "plan/kernel_rates.h"
#include "plan/launches.h"

struct kernel_row {
    struct launch launch; /* the first of them; bytes and FLOPs of one */
    int64_t times;
    bool mixed; /* they differ in size: buckets; of all together: */
    double numel, flops, bytes, seconds;
    enum kernel_bound bound;
};

struct kernel_total {
    int64_t launches;
    double flops, bytes;
    double seconds; /* of the compute stream */
    double beside;  /* of other streams */
    double by_bound[NUM_KERNEL_BOUNDS];
};

struct kernel_table {
    struct kernel_rates rates;
    struct kernel_row *rows; /* owned; in the order in which the first of each comes */
    size_t num_rows;
    struct kernel_total totals[NUM_LAUNCH_KINDS];
    double flops; /* of gemm and attention */
    int64_t num_launches, num_graphs;
    double device_s, host_s; /* of a step; the longer one is it */
    double step_s, tokens_per_s, mfu;
};

int kernel_table_new(struct kernel_table **out, const Plan *plan, const ClusterSpec *cluster,
                     enum kernel_attention attention, struct error *err);
void kernel_table_free(struct kernel_table *t);

/* device_s and host_s of that alone, with rates that were found for the plan. */
int kernel_seconds(const Plan *plan, const struct kernel_rates *rates, double *device_s,
                   double *host_s, struct error *err);

#endif
