/* Operations in a queue beside those of the compute stream, on one device: gradients are summed
 * while the backward pass goes on. Both must give the bits that they give alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/effort.h"
#include "tests/parity/ops_case.h"

enum { R = 300, D = 192, N = R * D };

/* Buffers that a chain of operations works in, over and over. */
struct chain {
    float *x, *y, *dx, *w, *b, *dw, *db, *mean, *rstd, *logits;
    double *max, *sums, *nll, *square;
    int32_t *ids;
    void *workspace;
};

static struct error last;

static struct chain chain_new(const struct side *side, uint64_t seed)
{
    size_t bytes = side->k->layernorm_bwd_workspace(side->dev, DTYPE_F32, R, D);
    return (struct chain){
        .x = side_draw(side, DTYPE_F32, N, seed, 1),
        .y = side_zeros(side, DTYPE_F32, N),
        .dx = side_zeros(side, DTYPE_F32, N),
        .w = side_draw(side, DTYPE_F32, D * D, seed + 1, 0.1),
        .b = side_draw(side, DTYPE_F32, D, seed + 2, 1),
        .dw = side_zeros(side, DTYPE_F32, D),
        .db = side_zeros(side, DTYPE_F32, D),
        .mean = side_zeros(side, DTYPE_F32, R),
        .rstd = side_zeros(side, DTYPE_F32, R),
        .logits = side_zeros(side, DTYPE_F32, N),
        .max = side_zeros(side, DTYPE_F64, R),
        .sums = side_zeros(side, DTYPE_F64, 2 * R),
        .nll = side_zeros(side, DTYPE_F64, R),
        .square = side_zeros(side, DTYPE_F64, 1),
        .ids = side_ints(side, R, seed + 3, D),
        .workspace = side->dev->ops->alloc(side->dev, bytes, MEM_DEVICE),
    };
}

#define DO(op, ...) assert_int_equal(side->k->op(side->dev, s, DTYPE_F32, __VA_ARGS__, &last), 0)

static void chain_run(const struct side *side, struct stream *s, const struct chain *c)
{
    struct logits_part part = {c->logits, R, D, D - 5, 0, c->ids};
    struct gemm_args gemm = {.m = R,
                             .n = D,
                             .k = D,
                             .alpha = 1,
                             .a = c->y,
                             .lda = D,
                             .b = c->w,
                             .ldb = D,
                             .c = c->logits,
                             .ldc = D};
    DO(layernorm_fwd, c->y, c->mean, c->rstd, c->x, c->b, c->b, R, D, 1e-5);
    assert_int_equal(side->k->gemm(side->dev, s, DTYPE_F32, &gemm, &last), 0);
    DO(add_bias, c->logits, c->b, R, D);
    DO(ce_max, c->max, &part);
    DO(ce_sum, c->sums, c->max, &part);
    DO(ce_finish, c->nll, c->logits, c->max, c->sums, 0.5, &part);
    DO(gelu_fwd, c->y, c->logits, N);
    DO(gelu_bwd, c->y, c->logits, c->y, N);
    DO(layernorm_bwd, c->dx, c->dw, c->db, c->y, c->x, c->b, c->mean, c->rstd, R, D, true,
       c->workspace);
    DO(column_sum, c->db, c->dx, R, D);
    DO(embed_bwd, c->w, c->dx, c->ids, 3, R, D - 7, D, NULL);
    DO(add, c->x, c->x, c->dx, N);
    DO(scale, c->x, 0.5, N);
    struct span all = {0, N};
    DO(sum_squares, c->square, c->x, &all, 1, c->square);
    assert_int_equal(
        side->dev->ops->copy(side->dev, s, c->y, c->x, sizeof(float) * N, COPY_ON_DEVICE, &last),
        0);
}

static void assert_same(const struct chain *a, const struct chain *b)
{
    assert_memory_equal(a->x, b->x, sizeof(float) * N);
    assert_memory_equal(a->w, b->w, sizeof(float) * D * D);
    assert_memory_equal(a->dw, b->dw, sizeof(float) * D);
    assert_memory_equal(a->db, b->db, sizeof(float) * D);
    assert_memory_equal(a->nll, b->nll, sizeof(double) * R);
    assert_memory_equal(a->square, b->square, sizeof(double));
}

static void a_queue_beside_computation_changes_no_bit(void **state)
{
    (void)state;
    int num_rounds = effort(200, 20, 5);
    struct side alone = side_open("cpu", 1);
    struct side both = side_open("cpu", 3);
    struct chain want[2] = {chain_new(&alone, 1), chain_new(&alone, 50)};
    struct chain got[2] = {chain_new(&both, 1), chain_new(&both, 50)};
    struct stream *queue;
    assert_int_equal(both.dev->ops->stream_new(both.dev, STREAM_QUEUE, &queue, &last), 0);
    for (int i = 0; i < num_rounds; i++) {
        chain_run(&both, queue, &got[1]);
        chain_run(&both, both.s, &got[0]);
        chain_run(&alone, alone.s, &want[0]);
        chain_run(&alone, alone.s, &want[1]);
    }
    assert_int_equal(both.dev->ops->stream_sync(both.dev, queue, &last), 0);
    assert_same(&want[0], &got[0]);
    assert_same(&want[1], &got[1]);
    both.dev->ops->stream_free(both.dev, queue);
    side_close(&both);
    side_close(&alone);
}

/* A sum of gradients in a queue waits for the backward pass that made them, and the optimizer for
 * the sum: as the runtime chains them, each slice by events of its own. */
static void slices_are_handed_over_by_events(void **state)
{
    (void)state;
    enum { SLICES = 8, SIZE = 4099 };
    struct side x = side_open("cpu", 2);
    struct stream *queue;
    struct event *ready[SLICES];
    struct event *summed[SLICES];
    float *part = side_zeros(&x, DTYPE_F32, SLICES * SIZE);
    float *sum = side_zeros(&x, DTYPE_F32, SLICES * SIZE);
    const struct device_ops *ops = x.dev->ops;
    assert_int_equal(ops->stream_new(x.dev, STREAM_QUEUE, &queue, &last), 0);
    for (int i = 0; i < SLICES; i++) {
        assert_int_equal(ops->event_new(x.dev, &ready[i], &last), 0);
        assert_int_equal(ops->event_new(x.dev, &summed[i], &last), 0);
    }
    int num_rounds = effort(500, 50, 5);
    for (int round = 1; round <= num_rounds; round++) {
        for (int i = 0; i < SLICES; i++) {
            float *p = part + i * SIZE;
            float *q = sum + i * SIZE;
            assert_int_equal(ops->stream_wait(x.dev, x.s, summed[i], &last), 0);
            for (int j = 0; j < SIZE; j++) {
                p[j] = (float)(round + j);
            }
            assert_int_equal(ops->event_record(x.dev, ready[i], x.s, &last), 0);
            assert_int_equal(ops->stream_wait(x.dev, queue, ready[i], &last), 0);
            assert_int_equal(x.k->add(x.dev, queue, DTYPE_F32, q, q, p, SIZE, &last), 0);
            assert_int_equal(ops->event_record(x.dev, summed[i], queue, &last), 0);
        }
    }
    for (int i = 0; i < SLICES; i++) {
        assert_int_equal(ops->stream_wait(x.dev, x.s, summed[i], &last), 0);
        for (int j = 0; j < SIZE; j++) {
            double want = (double)num_rounds * (num_rounds + 1) / 2 + (double)num_rounds * j;
            assert_true((double)sum[i * SIZE + j] == want);
        }
    }
    ops->stream_free(x.dev, queue);
    for (int i = 0; i < SLICES; i++) {
        ops->event_free(x.dev, ready[i]);
        ops->event_free(x.dev, summed[i]);
    }
    side_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_beside_computation_changes_no_bit),
        cmocka_unit_test(slices_are_handed_over_by_events),
    };
    return cmocka_run_group_tests_name("beside", tests, NULL, NULL);
}
