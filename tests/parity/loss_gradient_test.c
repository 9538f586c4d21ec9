/* The reference's losses against known answers and, as for every operation, against differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/parity/problem.h"

#define NUM_PARTS 3

static struct error last;

/* The loss of a row is weighted by dloss alone: c is 1. */
static void cross_entropy_forward(struct problem *p)
{
    assert_int_equal(p->side.k->cross_entropy(p->side.dev, p->side.s, DTYPE_F64, p->y, NULL,
                                              p->input[0], p->ids, 1, p->s.r, p->s.v, p->s.v,
                                              &last),
                     0);
}

static void cross_entropy_backward(struct problem *p)
{
    assert_int_equal(p->side.k->cross_entropy(p->side.dev, p->side.s, DTYPE_F64, p->y,
                                              p->gradient[0], p->input[0], p->ids, 1, p->s.r,
                                              p->s.v, p->s.v, &last),
                     0);
}

static void cross_entropy_gradient_is_its_slope(void **state)
{
    (void)state;
    struct shape s = {.r = 9, .v = 23};
    struct problem p = problem_new(&s, s.r);
    problem_add_input(&p, s.r * s.v);
    p.ids = draw_targets(&p.side, &s);
    for (int64_t r = 0; r < s.r; r++) {
        p.c[r] = 1;
    }
    p.forward = cross_entropy_forward;
    p.backward = cross_entropy_backward;
    problem_check_gradients(&p);
}

/* Logits [R, V] as parts of V/3 columns each. */
static struct logits_part part_of(struct problem *p, int i, double *logits)
{
    int64_t ld = p->s.v / NUM_PARTS;
    for (int64_t r = 0; r < p->s.r; r++) {
        memcpy(logits + r * ld, p->input[0] + r * p->s.v + i * ld, (size_t)ld * sizeof *logits);
    }
    return (struct logits_part){logits, p->s.r, ld, ld, i * ld, p->ids};
}

static void parts_run(struct problem *p, bool backward)
{
    const struct side *x = &p->side;
    int64_t num = p->s.r * p->s.v / NUM_PARTS;
    double *logits = side_zeros(x, DTYPE_F64, num);
    double *own = side_zeros(x, DTYPE_F64, 2 * p->s.r);
    double *max = side_zeros(x, DTYPE_F64, p->s.r);
    double *sums = side_zeros(x, DTYPE_F64, 2 * p->s.r);
    for (int i = 0; i < NUM_PARTS; i++) {
        struct logits_part part = part_of(p, i, logits);
        assert_int_equal(x->k->ce_max(x->dev, x->s, DTYPE_F64, own, &part, &last), 0);
        for (int64_t r = 0; r < p->s.r; r++) {
            max[r] = i == 0 || own[r] > max[r] ? own[r] : max[r];
        }
    }
    for (int i = 0; i < NUM_PARTS; i++) {
        struct logits_part part = part_of(p, i, logits);
        assert_int_equal(x->k->ce_sum(x->dev, x->s, DTYPE_F64, own, max, &part, &last), 0);
        for (int64_t r = 0; r < 2 * p->s.r; r++) {
            sums[r] += own[r];
        }
    }
    for (int i = 0; i < NUM_PARTS; i++) {
        struct logits_part part = part_of(p, i, logits);
        assert_int_equal(x->k->ce_finish(x->dev, x->s, DTYPE_F64, p->y, backward ? logits : NULL,
                                         max, sums, 1, &part, &last),
                         0);
        for (int64_t r = 0; backward && r < p->s.r; r++) {
            memcpy(p->gradient[0] + r * p->s.v + part.first, logits + r * part.ld,
                   (size_t)part.ld * sizeof *logits);
        }
    }
}

static void parts_forward(struct problem *p)
{
    parts_run(p, false);
}

static void parts_backward(struct problem *p)
{
    parts_run(p, true);
}

static struct problem parts_problem(void)
{
    struct shape s = {.r = 9, .v = 24};
    struct problem p = problem_new(&s, s.r);
    problem_add_input(&p, s.r * s.v);
    p.ids = draw_targets(&p.side, &s);
    for (int64_t r = 0; r < s.r; r++) {
        p.c[r] = 1;
    }
    p.forward = parts_forward;
    p.backward = parts_backward;
    return p;
}

static void gradient_of_a_cut_vocabulary_is_its_slope(void **state)
{
    (void)state;
    struct problem p = parts_problem();
    problem_check_gradients(&p);
}

/* Losses and gradients are those of the vocabulary in one piece. */
static void a_cut_vocabulary_gives_the_loss_of_the_whole(void **state)
{
    (void)state;
    struct problem p = parts_problem();
    int64_t n = p.s.r * p.s.v;
    double *nll = side_poison(&p.side, DTYPE_F64, p.s.r);
    double *gradient = side_poison(&p.side, DTYPE_F64, n);
    parts_backward(&p);
    assert_int_equal(p.side.k->cross_entropy(p.side.dev, p.side.s, DTYPE_F64, nll, gradient,
                                             p.input[0], p.ids, 1, p.s.r, p.s.v, p.s.v, &last),
                     0);
    for (int64_t r = 0; r < p.s.r; r++) {
        assert_true(fabs(nll[r] - p.y[r]) < 1e-14);
    }
    for (int64_t i = 0; i < n; i++) {
        assert_true(fabs(gradient[i] - p.gradient[0][i]) < 1e-15);
    }
    side_close(&p.side);
}

/* Known answer: logits 0, 1, 2, 3 and target 3. */
static void cross_entropy_gives_the_known_loss(void **state)
{
    (void)state;
    struct side side = side_open("ref", 1);
    double logits[] = {0, 1, 2, 3};
    double nll = 0;
    int32_t target = 3;
    assert_int_equal(side.k->cross_entropy(side.dev, side.s, DTYPE_F64, &nll, NULL, logits, &target,
                                           1, 1, 4, 4, &last),
                     0);
    assert_true(fabs(nll - 0.4401896985611953) < 1e-15);
    side_close(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_gradient_is_its_slope),
        cmocka_unit_test(cross_entropy_gives_the_known_loss),
        cmocka_unit_test(gradient_of_a_cut_vocabulary_is_its_slope),
        cmocka_unit_test(a_cut_vocabulary_gives_the_loss_of_the_whole),
    };
    return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
