/* An operation of the reference with inputs and a loss, whose gradients are held against central
 * differences of its forward pass along random directions, in f64. */
#ifndef TANDEM_TESTS_PARITY_PROBLEM_H
#define TANDEM_TESTS_PARITY_PROBLEM_H

#include "tests/parity/ops_run.h"

#define MAX_INPUTS 3

/* An operation with inputs, one output y and loss = sum of c * y. */
struct problem {
    struct side side;
    struct shape s;
    int num_inputs;
    int64_t n[MAX_INPUTS];
    double *input[MAX_INPUTS];
    double *gradient[MAX_INPUTS];
    double *y, *c;
    int64_t num_y;
    double *mean, *rstd, *lse, *cos, *sin;
    int32_t *ids;
    void *workspace;
    void (*forward)(struct problem *p);
    void (*backward)(struct problem *p);
};

struct problem problem_new(const struct shape *s, int64_t num_y);
void problem_add_input(struct problem *p, int64_t n);
/* Closes the problem. */
void problem_check_gradients(struct problem *p);

#endif
