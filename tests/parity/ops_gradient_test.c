/* Every gradient of the reference, in f64, against central differences of its forward pass along
 * random directions: the truth must be true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/parity/problem.h"

static struct error last;

static void rmsnorm_forward(struct problem *p)
{
    assert_int_equal(p->side.k->rmsnorm_fwd(p->side.dev, p->side.s, DTYPE_F64, p->y, p->rstd,
                                            p->input[0], p->input[1], p->s.r, p->s.d, 1e-5, &last),
                     0);
}

static void rmsnorm_backward(struct problem *p)
{
    assert_int_equal(p->side.k->rmsnorm_bwd(p->side.dev, p->side.s, DTYPE_F64, p->gradient[0],
                                            p->gradient[1], p->c, p->input[0], p->input[1], p->rstd,
                                            p->s.r, p->s.d, false, NULL, &last),
                     0);
}

static void rmsnorm_gradient_is_its_slope(void **state)
{
    (void)state;
    struct problem p = problem_new(&(struct shape){.r = 7, .d = 13}, 7 * 13);
    problem_add_input(&p, 7 * 13);
    problem_add_input(&p, 13);
    p.rstd = side_poison(&p.side, DTYPE_F64, 7);
    p.forward = rmsnorm_forward;
    p.backward = rmsnorm_backward;
    problem_check_gradients(&p);
}

static void layernorm_forward(struct problem *p)
{
    assert_int_equal(p->side.k->layernorm_fwd(p->side.dev, p->side.s, DTYPE_F64, p->y, p->mean,
                                              p->rstd, p->input[0], p->input[1], p->input[2],
                                              p->s.r, p->s.d, 1e-5, &last),
                     0);
}

static void layernorm_backward(struct problem *p)
{
    assert_int_equal(p->side.k->layernorm_bwd(p->side.dev, p->side.s, DTYPE_F64, p->gradient[0],
                                              p->gradient[1], p->gradient[2], p->c, p->input[0],
                                              p->input[1], p->mean, p->rstd, p->s.r, p->s.d, false,
                                              NULL, &last),
                     0);
}

static void layernorm_gradient_is_its_slope(void **state)
{
    (void)state;
    struct problem p = problem_new(&(struct shape){.r = 7, .d = 13}, 7 * 13);
    problem_add_input(&p, 7 * 13);
    problem_add_input(&p, 13);
    problem_add_input(&p, 13);
    p.mean = side_poison(&p.side, DTYPE_F64, 7);
    p.rstd = side_poison(&p.side, DTYPE_F64, 7);
    p.forward = layernorm_forward;
    p.backward = layernorm_backward;
    problem_check_gradients(&p);
}

/* y is rotated in place, so it starts as a copy. */
static void rope_forward(struct problem *p)
{
    memcpy(p->y, p->input[0], (size_t)p->num_y * sizeof(double));
    assert_int_equal(p->side.k->rope(p->side.dev, p->side.s, DTYPE_F64, p->y, p->cos, p->sin, NULL,
                                     p->s.r, p->s.t, p->s.h, p->s.e, false, &last),
                     0);
}

static void rope_backward(struct problem *p)
{
    memcpy(p->gradient[0], p->c, (size_t)p->num_y * sizeof(double));
    assert_int_equal(p->side.k->rope(p->side.dev, p->side.s, DTYPE_F64, p->gradient[0], p->cos,
                                     p->sin, NULL, p->s.r, p->s.t, p->s.h, p->s.e, true, &last),
                     0);
}

static struct problem rope_problem(void)
{
    struct shape s = {.r = 10, .t = 5, .h = 2, .e = 6};
    struct problem p = problem_new(&s, 10 * 2 * 6);
    problem_add_input(&p, 10 * 2 * 6);
    p.cos = side_zeros(&p.side, DTYPE_F64, s.t * s.e / 2);
    p.sin = side_zeros(&p.side, DTYPE_F64, s.t * s.e / 2);
    for (int64_t t = 0; t < s.t; t++) {
        for (int64_t i = 0; i < s.e / 2; i++) {
            double angle = (double)t * pow(10000, -2 * (double)i / (double)s.e);
            p.cos[t * s.e / 2 + i] = cos(angle);
            p.sin[t * s.e / 2 + i] = sin(angle);
        }
    }
    p.forward = rope_forward;
    p.backward = rope_backward;
    return p;
}

static void rope_gradient_is_its_slope(void **state)
{
    (void)state;
    struct problem p = rope_problem();
    problem_check_gradients(&p);
}

/* A score must depend on the distance of two positions alone: with the same rotation pairs on both
 * sides, q(t) . k(u) = q(t+1) . k(u+1). */
static void rope_scores_depend_on_the_distance_alone(void **state)
{
    (void)state;
    struct problem p = rope_problem();
    int64_t width = p.s.h * p.s.e;
    for (int64_t r = 1; r < p.s.r; r++) {
        memcpy(p.input[0] + r * width, p.input[0], (size_t)width * sizeof(double));
    }
    p.forward(&p);
    double near = 0;
    double later = 0;
    for (int64_t e = 0; e < p.s.e; e++) {
        near += p.y[0 * width + e] * p.y[2 * width + p.s.e + e];
        later += p.y[2 * width + e] * p.y[4 * width + p.s.e + e];
    }
    assert_true(fabs(near - later) < 1e-12);
    side_close(&p.side);
}

static struct attention_args attention_of(struct problem *p)
{
    return (struct attention_args){
        .b = p->s.b,
        .t = p->s.t,
        .h = p->s.h,
        .kv = p->s.kv,
        .e = p->s.e,
        .scale = 0.4,
        .q = p->input[0],
        .k = p->input[1],
        .v = p->input[2],
        .segments = p->ids,
        .o = p->y,
        .lse = p->lse,
        .d_o = p->c,
        .dq = p->gradient[0],
        .dk = p->gradient[1],
        .dv = p->gradient[2],
        .workspace = p->workspace,
    };
}

static void attention_forward(struct problem *p)
{
    struct attention_args a = attention_of(p);
    assert_int_equal(p->side.k->attention_fwd(p->side.dev, p->side.s, DTYPE_F64, &a, &last), 0);
}

static void attention_backward(struct problem *p)
{
    struct attention_args a = attention_of(p);
    assert_int_equal(p->side.k->attention_bwd(p->side.dev, p->side.s, DTYPE_F64, &a, &last), 0);
}

static struct problem attention_problem(const struct shape *s)
{
    struct problem p = problem_new(s, s->b * s->t * s->h * s->e);
    problem_add_input(&p, s->b * s->t * s->h * s->e);
    problem_add_input(&p, s->b * s->t * s->kv * s->e);
    problem_add_input(&p, s->b * s->t * s->kv * s->e);
    p.ids = s->segments ? draw_segments(&p.side, s) : NULL;
    p.lse = side_poison(&p.side, DTYPE_F64, s->b * s->h * s->t);
    p.workspace = p.side.dev->ops->alloc(
        p.side.dev,
        p.side.k->attention_workspace(p.side.dev, DTYPE_F64, s->b, s->t, s->h, s->kv, s->e),
        MEM_DEVICE);
    p.forward = attention_forward;
    p.backward = attention_backward;
    return p;
}

static void attention_gradient_is_its_slope(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shape s = {.b = 2, .t = 19, .h = 6, .kv = i & 1 ? 2 : 6, .e = 5, .segments = i >> 1};
        struct problem p = attention_problem(&s);
        problem_check_gradients(&p);
    }
}

/* What comes later, and what belongs to another document, has no influence at all. */
static void attention_sees_neither_the_future_nor_other_documents(void **state)
{
    (void)state;
    struct shape s = {.b = 1, .t = 70, .h = 2, .kv = 1, .e = 4, .segments = true};
    struct problem p = attention_problem(&s);
    int64_t own = 30;
    p.forward(&p);
    double before[8];
    memcpy(before, p.y + own * 8, sizeof before);
    for (int64_t t = 0; t < s.t; t++) {
        if (t > own || p.ids[t] != p.ids[own]) {
            for (int64_t e = 0; e < 4; e++) {
                p.input[1][t * 4 + e] = 1e3;
                p.input[2][t * 4 + e] = -1e3;
            }
        }
    }
    p.forward(&p);
    assert_memory_equal(before, p.y + own * 8, sizeof before);
    side_close(&p.side);
}

static void swiglu_forward(struct problem *p)
{
    assert_int_equal(p->side.k->swiglu_fwd(p->side.dev, p->side.s, DTYPE_F64, p->y, p->input[0],
                                           p->input[1], p->s.n, &last),
                     0);
}

static void swiglu_backward(struct problem *p)
{
    assert_int_equal(p->side.k->swiglu_bwd(p->side.dev, p->side.s, DTYPE_F64, p->gradient[0],
                                           p->gradient[1], p->c, p->input[0], p->input[1], p->s.n,
                                           &last),
                     0);
}

static void swiglu_gradient_is_its_slope(void **state)
{
    (void)state;
    struct problem p = problem_new(&(struct shape){.n = 101}, 101);
    problem_add_input(&p, 101);
    problem_add_input(&p, 101);
    p.forward = swiglu_forward;
    p.backward = swiglu_backward;
    problem_check_gradients(&p);
}

static void gelu_forward(struct problem *p)
{
    assert_int_equal(
        p->side.k->gelu_fwd(p->side.dev, p->side.s, DTYPE_F64, p->y, p->input[0], p->s.n, &last),
        0);
}

static void gelu_backward(struct problem *p)
{
    assert_int_equal(p->side.k->gelu_bwd(p->side.dev, p->side.s, DTYPE_F64, p->gradient[0], p->c,
                                         p->input[0], p->s.n, &last),
                     0);
}

static void gelu_gradient_is_its_slope(void **state)
{
    (void)state;
    struct problem p = problem_new(&(struct shape){.n = 101}, 101);
    problem_add_input(&p, 101);
    p.forward = gelu_forward;
    p.backward = gelu_backward;
    problem_check_gradients(&p);
}

/* Known answers of Hugging Face's gelu_new in fp64. */
static void gelu_gives_the_known_values(void **state)
{
    (void)state;
    static const double x[] = {-3, -1, -0.1, 0, 0.5, 1, 2.5};
    static const double want[] = {
        -0.0036373920817730191, -0.15880800939172329, -0.046017248954564834, 0,
        0.34571400982514394,    0.84119199060827665,  2.4849157339100012};
    struct side side = side_open("ref", 1);
    double y[7];
    assert_int_equal(side.k->gelu_fwd(side.dev, side.s, DTYPE_F64, y, x, 7, &last), 0);
    for (int i = 0; i < 7; i++) {
        assert_true(fabs(y[i] - want[i]) < 1e-15);
    }
    side_close(&side);
}

/* y = x + b: the gradient of b is the sum of columns. */
static void bias_forward(struct problem *p)
{
    memcpy(p->y, p->input[0], (size_t)p->num_y * sizeof(double));
    assert_int_equal(p->side.k->add_bias(p->side.dev, p->side.s, DTYPE_F64, p->y, p->input[1],
                                         p->s.r, p->s.n, &last),
                     0);
}

static void bias_backward(struct problem *p)
{
    memcpy(p->gradient[0], p->c, (size_t)p->num_y * sizeof(double));
    assert_int_equal(p->side.k->column_sum(p->side.dev, p->side.s, DTYPE_F64, p->gradient[1], p->c,
                                           p->s.r, p->s.n, &last),
                     0);
}

static void bias_gradient_is_its_slope(void **state)
{
    (void)state;
    struct problem p = problem_new(&(struct shape){.r = 11, .n = 7}, 11 * 7);
    problem_add_input(&p, 11 * 7);
    problem_add_input(&p, 7);
    p.forward = bias_forward;
    p.backward = bias_backward;
    problem_check_gradients(&p);
}

static void embed_forward(struct problem *p)
{
    assert_int_equal(p->side.k->embed_fwd(p->side.dev, p->side.s, DTYPE_F64, p->y, p->input[0],
                                          p->ids, 0, p->s.r, p->s.v, p->s.d, &last),
                     0);
}

static void embed_backward(struct problem *p)
{
    assert_int_equal(p->side.k->embed_bwd(p->side.dev, p->side.s, DTYPE_F64, p->gradient[0], p->c,
                                          p->ids, 0, p->s.r, p->s.v, p->s.d, NULL, &last),
                     0);
}

static void embed_gradient_is_its_slope(void **state)
{
    (void)state;
    struct shape s = {.r = 30, .v = 7, .d = 5};
    struct problem p = problem_new(&s, s.r * s.d);
    problem_add_input(&p, s.v * s.d);
    p.ids = side_ints(&p.side, s.r, 4, s.v);
    p.forward = embed_forward;
    p.backward = embed_backward;
    problem_check_gradients(&p);
}

/* A vocabulary cut into parts: each row comes from one of them, zeros from the others, and the
 * parts' gradients lie side by side. */
static void parts_of_an_embedding_add_up_to_the_whole(void **state)
{
    (void)state;
    enum { R = 50, V = 11, D = 3, PART = 4, N = R * D };
    struct side x = side_open("ref", 1);
    double *w = side_draw(&x, DTYPE_F64, V * D, 1, 1);
    double *dy = side_draw(&x, DTYPE_F64, N, 2, 1);
    double *dw = side_zeros(&x, DTYPE_F64, V * D);
    int32_t *ids = side_ints(&x, R, 3, V);
    double sum[N] = {0};
    double y[N];
    for (int64_t first = 0; first < V; first += PART) {
        int64_t v = V - first < PART ? V - first : PART;
        assert_int_equal(
            x.k->embed_fwd(x.dev, x.s, DTYPE_F64, y, w + first * D, ids, first, R, v, D, &last), 0);
        assert_int_equal(x.k->embed_bwd(x.dev, x.s, DTYPE_F64, dw + first * D, dy, ids, first, R, v,
                                        D, NULL, &last),
                         0);
        for (int i = 0; i < N; i++) {
            sum[i] += y[i];
        }
    }
    for (int r = 0; r < R; r++) {
        for (int d = 0; d < D; d++) {
            assert_true(sum[r * D + d] == w[ids[r] * D + d]);
            dw[ids[r] * D + d] -= dy[r * D + d];
        }
    }
    for (int i = 0; i < V * D; i++) {
        assert_true(fabs(dw[i]) < 1e-14);
    }
    side_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_gradient_is_its_slope),
        cmocka_unit_test(layernorm_gradient_is_its_slope),
        cmocka_unit_test(rope_gradient_is_its_slope),
        cmocka_unit_test(rope_scores_depend_on_the_distance_alone),
        cmocka_unit_test(attention_gradient_is_its_slope),
        cmocka_unit_test(attention_sees_neither_the_future_nor_other_documents),
        cmocka_unit_test(swiglu_gradient_is_its_slope),
        cmocka_unit_test(gelu_gradient_is_its_slope),
        cmocka_unit_test(gelu_gives_the_known_values),
        cmocka_unit_test(bias_gradient_is_its_slope),
        cmocka_unit_test(embed_gradient_is_its_slope),
        cmocka_unit_test(parts_of_an_embedding_add_up_to_the_whole),
    };
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
