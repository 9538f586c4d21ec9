/* Two runs of one job in fp64, or in bf16: did they compute the same? */
#ifndef TANDEM_TESTS_PARALLEL_COMPARE_H
#define TANDEM_TESTS_PARALLEL_COMPARE_H

#include "record.h"

/* Only the order of sums differs. */
#define COMPARE_SAME 1e-12

/* Largest relative distances of all that was compared. */
struct compare_worst {
    double loss, norm, grads_l2, grads_max, weights, exp_avg, exp_avg_sq;
    double later; /* losses behind the first step, in bf16 */
};

/* Loss and norm of each step, every gradient of the first, weights and moments after the last.
 * Fails the test, behind words, where one is off by more than COMPARE_SAME. */
void compare_runs(struct compare_worst *worst, const char *words, const struct run *one,
                  const struct run *many);
/* The same of runs in bf16, of which one is on one rank; see compare.c for how near they must be.
 */
void compare_rounded(struct compare_worst *worst, const char *words, const struct run *one,
                     const struct run *many);
/* Loss and norm of each step alone, to given distances. */
void compare_curves(const char *words, const struct gang *one, const struct gang *many, double loss,
                    double norm);
/* "loss 1.1e-15, norm ..." */
void compare_print(const struct compare_worst *worst);

#endif
