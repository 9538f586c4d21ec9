/* Embeddings: rows by their ids, and gradients that are summed in one order. */
#include "tests/cusim/numbers.h"

struct embed_case {
    enum dtype t;
    int64_t first, r, v, d;
    int spread; /* ids are drawn from so many; 1: all are the same */
    size_t skip;
};

/* Some ids are below the part of the vocabulary, some behind it. */
static int32_t *ids_draw(const struct embed_case *c)
{
    int32_t *ids = malloc((size_t)(c->r + 1) * sizeof *ids);
    for (int64_t i = 0; i < c->r; i++) {
        uint64_t draw = rng_u64(3, rng_stream("ids"), (uint64_t)i) % (uint64_t)c->spread;
        ids[i] = (int32_t)(draw + (uint64_t)(c->first ? c->first - 2 : 0));
    }
    return ids;
}

static void check_embed(const struct embed_case *c, float *dw_bits)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    int32_t *ids = ids_draw(c);
    int32_t *device = side_put(s, ids, (size_t)c->r * sizeof *ids);
    struct numbers w = numbers_draw(s, c->t, c->v * c->d, 1, false, c->skip);
    struct numbers y = numbers_none(s, c->t, c->r * c->d, c->skip);
    struct numbers dw = numbers_draw(s, DTYPE_F32, c->v * c->d, 2, false, 0);
    struct numbers dy = numbers_draw(s, c->t, c->r * c->d, 3, false, c->skip);
    void *workspace = side_put(s, NULL, workspace_cuda_embed_bwd(c->r, c->d));
    MUST(cuda_embed_fwd(s, c->t, y.device, w.device, device, c->first, c->r, c->v, c->d));
    MUST(cuda_embed_bwd(s, c->t, dw.device, dy.device, device, c->first, c->r, c->v, c->d,
                        workspace));
    AGREES(k->embed_fwd(ref, ref_stream, DTYPE_F64, y.ref, w.ref, ids, c->first, c->r, c->v, c->d,
                        &err));
    AGREES(k->embed_bwd(ref, ref_stream, DTYPE_F64, dw.ref, dy.ref, ids, c->first, c->r, c->v, c->d,
                        NULL, &err));
    numbers_agree(s, "y", &y, 0);
    numbers_agree(s, "dw", &dw, allowed(DTYPE_F32));
    if (dw_bits) {
        side_get(s, dw_bits, dw.device, (size_t)(c->v * c->d) * sizeof *dw_bits);
    }
    free(ids);
    side_free(device, 0);
    side_free(workspace, 0);
    numbers_free(&w);
    numbers_free(&y);
    numbers_free(&dw);
    numbers_free(&dy);
    MUST(cudaStreamDestroy(s));
}

static void embeddings_agree_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        size_t skip = i % 3 ? 0 : dtype_size(t);
        check_embed(&(struct embed_case){t, 0, 1, 1, 1, 1, 0}, NULL);
        check_embed(&(struct embed_case){t, 0, 9, 4, 5, 4, 0}, NULL);
        check_embed(&(struct embed_case){t, 100, 37, 19, 24, 23, skip}, NULL);
    }
}

/* An id's rows are summed in pieces of WORKSPACE_EMBED_PIECE: one piece exactly, one and a row,
 * many, several such ids beside each other. */
static void ids_with_many_rows_agree(void **state)
{
    (void)state;
    enum { P = WORKSPACE_EMBED_PIECE };
    static const struct embed_case cases[] = {
        {DTYPE_F32, 0, P, 3, 8, 1, 0},
        {DTYPE_BF16, 0, P + 1, 3, 9, 1, 0},
        {DTYPE_BF16, 0, 2 * P, 1, 8, 1, 0},
        {DTYPE_F32, 0, 7 * P + 5, 1, 5, 1, 0},
        {DTYPE_BF16, 0, 4 * P + 30, 2, 16, 2, 0},
        {DTYPE_F32, 7, 9 * P, 3, 12, 6, 0},
    };
    for (int i = 0; i < 6; i++) {
        schedule_take((i + 1) % NUM_SCHEDULES);
        check_embed(&cases[i], NULL);
    }
}

/* More rows than one tile sorts, and more tiles than are merged at a time. */
static void many_rows_are_sorted(void **state)
{
    (void)state;
    schedule_take(2 % NUM_SCHEDULES);
    check_embed(&(struct embed_case){DTYPE_F32, 0, SIZED(2048 + 3, 99), 301, 1, 301, 0}, NULL);
    schedule_take(1);
    int64_t r = SIZED(2048 * 17 + 5, 2048 + 9);
    check_embed(&(struct embed_case){DTYPE_BF16, 50, r, 7000, 1, 7010, 0}, NULL);
}

/* The same bits whoever runs first. */
static void a_gradient_has_one_order(void **state)
{
    (void)state;
    struct embed_case c = {DTYPE_F32, 0, 700, 5, 8, 5, 0};
    float first[40], again[40];
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        check_embed(&c, i ? again : first);
        assert_true(i == 0 || memcmp(first, again, sizeof first) == 0);
    }
}

/* No id of the batch is in this part of the vocabulary: nothing is written. */
static void a_part_without_ids_stays_as_it_is(void **state)
{
    (void)state;
    schedule_take(1);
    check_embed(&(struct embed_case){DTYPE_F32, 1000, 70, 4, 8, 2, 0}, NULL);
    cudaStream_t s = stream_open();
    int64_t before = cusim_counted().launches;
    MUST(cuda_embed_fwd(s, DTYPE_F32, NULL, NULL, NULL, 0, 0, 5, 8));
    MUST(cuda_embed_bwd(s, DTYPE_F32, NULL, NULL, NULL, 0, 0, 5, 8, NULL));
    MUST(cuda_embed_bwd(s, DTYPE_F32, NULL, NULL, NULL, 0, 5, 0, 8, NULL));
    assert_int_equal(cusim_counted().launches, before);
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_agree_with_the_reference),
        cmocka_unit_test(ids_with_many_rows_agree),
        cmocka_unit_test(many_rows_are_sorted),
        cmocka_unit_test(a_gradient_has_one_order),
        cmocka_unit_test(a_part_without_ids_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
