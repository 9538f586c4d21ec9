#include "tests/parity/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#define STEP 1e-5

static double loss(struct problem *p)
{
    p->forward(p);
    double sum = 0;
    for (int64_t i = 0; i < p->num_y; i++) {
        sum += p->c[i] * p->y[i];
    }
    return sum;
}

struct problem problem_new(const struct shape *s, int64_t num_y)
{
    struct problem p = {.side = side_open("ref", 1), .s = *s, .num_y = num_y};
    p.y = side_poison(&p.side, DTYPE_F64, num_y);
    p.c = side_draw(&p.side, DTYPE_F64, num_y, 77, 1);
    return p;
}

void problem_add_input(struct problem *p, int64_t n)
{
    int i = p->num_inputs++;
    p->n[i] = n;
    p->input[i] = side_draw(&p->side, DTYPE_F64, n, (uint64_t)i + 1, 1);
    p->gradient[i] = side_zeros(&p->side, DTYPE_F64, n);
}

void problem_check_gradients(struct problem *p)
{
    p->forward(p);
    p->backward(p);
    for (int i = 0; i < p->num_inputs; i++) {
        double *direction = side_draw(&p->side, DTYPE_F64, p->n[i], (uint64_t)i + 31, 1);
        double *start = side_upload(&p->side, DTYPE_F64, p->input[i], p->n[i]);
        double slope = 0;
        double at[2];
        for (int64_t j = 0; j < p->n[i]; j++) {
            slope += p->gradient[i][j] * direction[j];
        }
        for (int side = 0; side < 2; side++) {
            for (int64_t j = 0; j < p->n[i]; j++) {
                p->input[i][j] = start[j] + (side ? STEP : -STEP) * direction[j];
            }
            at[side] = loss(p);
        }
        memcpy(p->input[i], start, (size_t)p->n[i] * sizeof *start);
        double want = (at[1] - at[0]) / (2 * STEP);
        if (fabs(want - slope) > 1e-7 * (1 + fabs(want))) {
            fail_msg("gradient of input %d: %.12g, by differences %.12g", i, slope, want);
        }
    }
    side_close(&p->side);
}
