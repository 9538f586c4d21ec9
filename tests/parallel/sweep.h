/* A layout against one rank, in fp64: loss and norm of each step, every gradient of the first,
 * weights and moments after the last. */
#ifndef TANDEM_TESTS_PARALLEL_SWEEP_H
#define TANDEM_TESTS_PARALLEL_SWEEP_H

#include "layouts.h"
#include "record.h"

/* Only the order of sums differs. */
#define SWEEP_SAME 1e-12

/* Largest relative distances of all layouts that were compared. */
struct sweep_worst {
    double loss, norm, grads_l2, grads_max, weights, exp_avg, exp_avg_sq;
};

struct sweep;
void sweep_open(struct sweep **out);
void sweep_close(struct sweep *s);
const struct shape_files *sweep_files(const struct sweep *s, const struct layout *l);
/* Fails the test where the layout doesn't compute what one rank does (which is run once). */
void sweep_check(struct sweep *s, const struct layout *l);
const struct sweep_worst *sweep_worst(const struct sweep *s);

#endif
