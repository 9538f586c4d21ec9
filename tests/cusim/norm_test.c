/* RMS norm and layer norm: odd sizes, every alignment, every schedule, in place. */
#include "tests/cusim/numbers.h"

/* ---- RMS norm ---- */

static void check_rmsnorm(enum dtype t, int64_t r, int64_t d, bool alias, bool accumulate,
                          size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    struct numbers x = numbers_draw(s, t, r * d, 1, false, skip);
    struct numbers keep = numbers_draw(s, t, r * d, 1, false, skip);
    struct numbers w = numbers_draw(s, t, d, 2, false, skip);
    struct numbers dy = numbers_draw(s, t, r * d, 3, false, skip);
    struct numbers dw = numbers_draw(s, DTYPE_F32, d, 4, false, 0);
    struct numbers y = alias ? keep : numbers_none(s, t, r * d, skip);
    struct numbers rstd = numbers_none(s, DTYPE_F32, r, 0);
    struct numbers dx = alias        ? dy
                        : accumulate ? numbers_draw(s, t, r * d, 5, false, skip)
                                     : numbers_none(s, t, r * d, skip);
    size_t bytes = workspace_cuda_rmsnorm_bwd(r, d);
    void *workspace = side_put(s, NULL, bytes);
    MUST(cuda_rmsnorm_fwd(s, t, y.device, rstd.device, alias ? keep.device : x.device, w.device, r,
                          d, 1e-5));
    MUST(cuda_rmsnorm_bwd(s, t, dx.device, dw.device, dy.device, x.device, w.device, rstd.device, r,
                          d, accumulate, workspace));
    assert_int_equal(
        k->rmsnorm_fwd(ref, ref_stream, DTYPE_F64, y.ref, rstd.ref, x.ref, w.ref, r, d, 1e-5, &err),
        0);
    assert_int_equal(k->rmsnorm_bwd(ref, ref_stream, DTYPE_F64, dx.ref, dw.ref, dy.ref, x.ref,
                                    w.ref, rstd.ref, r, d, accumulate, NULL, &err),
                     0);
    numbers_agree(s, "y", &y, allowed(t));
    numbers_agree(s, "rstd", &rstd, allowed(DTYPE_F32));
    numbers_agree(s, "dx", &dx, allowed(t));
    numbers_agree(s, "dw", &dw, allowed(DTYPE_F32));
    if (!alias) {
        numbers_free(&y);
        numbers_free(&dx);
    }
    numbers_free(&x);
    numbers_free(&keep);
    numbers_free(&w);
    numbers_free(&dy);
    numbers_free(&dw);
    numbers_free(&rstd);
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

/* Rows that fit 16 bytes and rows that don't, memory that starts anywhere, more rows than one block
 * takes. */
static void rmsnorm_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        check_rmsnorm(t, 1, 1, false, false, 0);
        check_rmsnorm(t, 3, 331, i % 3 == 0, false, 0);
        check_rmsnorm(t, 5, 328, i % 3 == 1, i % 3 == 2, 0);
        check_rmsnorm(t, 7, 24, false, true, dtype_size(t));
    }
    schedule_take(0);
    check_rmsnorm(DTYPE_F32, effort(403, 403, 3), 9, false, false, 0);
    check_rmsnorm(DTYPE_F32, SIZED(effort(3300, 3300, 19), 19), 8, false, false, 0);
}

/* The weight's gradient of rows too long for shared memory is collected in the workspace. */
static void rmsnorm_of_very_long_rows_agrees(void **state)
{
    (void)state;
    schedule_take(4);
    check_rmsnorm(DTYPE_F32, 2, 24 * 1024 + 3, false, true, 0);
    check_rmsnorm(DTYPE_BF16, 2, 24 * 1024 + 8, false, false, 0);
}

/* ---- layer norm ---- */

static void check_layernorm(enum dtype t, int64_t r, int64_t d, bool alias, bool accumulate,
                            size_t skip)
{
    cudaStream_t s = stream_open();
    const struct kernels *k = kernels_ref();
    struct numbers x = numbers_draw(s, t, r * d, 1, true, skip); /* its mean isn't near 0 */
    struct numbers keep = numbers_draw(s, t, r * d, 1, true, skip);
    struct numbers w = numbers_draw(s, t, d, 2, false, skip);
    struct numbers b = numbers_draw(s, t, d, 6, false, skip);
    struct numbers dy = numbers_draw(s, t, r * d, 3, false, skip);
    struct numbers dw = numbers_draw(s, DTYPE_F32, d, 4, false, 0);
    struct numbers db = numbers_draw(s, DTYPE_F32, d, 7, false, 0);
    struct numbers y = alias ? keep : numbers_none(s, t, r * d, skip);
    struct numbers mean = numbers_none(s, DTYPE_F32, r, 0);
    struct numbers rstd = numbers_none(s, DTYPE_F32, r, 0);
    struct numbers dx = alias        ? dy
                        : accumulate ? numbers_draw(s, t, r * d, 5, false, skip)
                                     : numbers_none(s, t, r * d, skip);
    void *workspace = side_put(s, NULL, workspace_cuda_layernorm_bwd(r, d));
    MUST(cuda_layernorm_fwd(s, t, y.device, mean.device, rstd.device,
                            alias ? keep.device : x.device, w.device, b.device, r, d, 1e-5));
    MUST(cuda_layernorm_bwd(s, t, dx.device, dw.device, db.device, dy.device, x.device, w.device,
                            mean.device, rstd.device, r, d, accumulate, workspace));
    AGREES(k->layernorm_fwd(ref, ref_stream, DTYPE_F64, y.ref, mean.ref, rstd.ref, x.ref, w.ref,
                            b.ref, r, d, 1e-5, &err));
    AGREES(k->layernorm_bwd(ref, ref_stream, DTYPE_F64, dx.ref, dw.ref, db.ref, dy.ref, x.ref,
                            w.ref, mean.ref, rstd.ref, r, d, accumulate, NULL, &err));
    numbers_agree(s, "y", &y, allowed(t));
    numbers_agree(s, "mean", &mean, allowed(DTYPE_F32));
    numbers_agree(s, "rstd", &rstd, allowed(DTYPE_F32));
    numbers_agree(s, "dx", &dx, allowed(t));
    numbers_agree(s, "dw", &dw, allowed(DTYPE_F32));
    numbers_agree(s, "db", &db, allowed(DTYPE_F32));
    if (!alias) {
        numbers_free(&y);
        numbers_free(&dx);
    }
    struct numbers *all[] = {&x, &keep, &w, &b, &dy, &dw, &db, &mean, &rstd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        numbers_free(all[i]);
    }
    side_free(workspace, 0);
    MUST(cudaStreamDestroy(s));
}

static void layernorm_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        enum dtype t = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        check_layernorm(t, 1, 2, false, false, 0);
        check_layernorm(t, 3, 331, i % 3 == 0, false, 0);
        check_layernorm(t, 5, 328, i % 3 == 1, i % 3 == 2, 0);
        check_layernorm(t, 7, 24, false, true, dtype_size(t));
    }
    schedule_take(0);
    check_layernorm(DTYPE_F32, effort(403, 403, 3), 9, false, false, 0);
    check_layernorm(DTYPE_F32, SIZED(effort(3300, 3300, 19), 19), 8, false, false, 0);
}

static void layernorm_of_very_long_rows_agrees(void **state)
{
    (void)state;
    schedule_take(4);
    check_layernorm(DTYPE_F32, 2, 12 * 1024 + 3, false, true, 0);
    check_layernorm(DTYPE_BF16, 2, 12 * 1024 + 8, false, false, 0);
}

/* Backward passes hold rows in registers: of a warp up to a block, one to four times 16 bytes a
 * thread, all of them or not, more rows than a block takes at once. */
static void norms_agree_at_each_length_that_is_held(void **state)
{
    (void)state;
    static const int64_t lengths[] = {8,    96,   256,  384,  768,  1000,
                                      2048, 3072, 4096, 6144, 8192, 8200};
    for (int i = 0; i < 12 * SIZED(3, 1); i++) {
        schedule_take(i % NUM_SCHEDULES);
        int64_t d = lengths[i % 12];
        int mode = (i + i / 12) % 3;
        enum dtype t = (i + i / 12) % 2 ? DTYPE_F32 : DTYPE_BF16;
        int64_t r = d < 1000 ? SIZED(19, 9) : SIZED(5, 2);
        check_rmsnorm(t, r, d, mode == 0, mode == 1, 0);
        check_layernorm(t, r, d, mode == 1, mode == 2, 0);
    }
}

/* Blocks take rows in turns; what they share to sum one row isn't the next row's yet. */
static void blocks_that_take_many_rows_agree(void **state)
{
    (void)state;
    schedule_take(2);
    int64_t turns = SIZED(4, 1);
    check_rmsnorm(DTYPE_F32, turns * WORKSPACE_NORM_PARTS + 9, 388, false, true, 0);
    check_layernorm(DTYPE_F32, SIZED(4 * WORKSPACE_NORM_PARTS + 9, 9), 260, false, false, 0);
}

static void norms_of_nothing_do_nothing(void **state)
{
    (void)state;
    cudaStream_t s = stream_open();
    int64_t before = cusim_counted().launches;
    MUST(cuda_rmsnorm_fwd(s, DTYPE_F32, NULL, NULL, NULL, NULL, 0, 7, 1e-5));
    MUST(cuda_rmsnorm_bwd(s, DTYPE_BF16, NULL, NULL, NULL, NULL, NULL, NULL, 3, 0, false, NULL));
    MUST(cuda_layernorm_fwd(s, DTYPE_BF16, NULL, NULL, NULL, NULL, NULL, NULL, 0, 7, 1e-5));
    MUST(cuda_layernorm_bwd(s, DTYPE_F32, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3, 0,
                            false, NULL));
    assert_int_equal(cusim_counted().launches, before);
    assert_int_equal(cuda_rmsnorm_fwd(s, DTYPE_F64, NULL, NULL, NULL, NULL, 1, 1, 1e-5),
                     cudaErrorInvalidValue);
    MUST(cudaStreamDestroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_agrees_with_the_reference),
        cmocka_unit_test(rmsnorm_of_very_long_rows_agrees),
        cmocka_unit_test(layernorm_agrees_with_the_reference),
        cmocka_unit_test(layernorm_of_very_long_rows_agrees),
        cmocka_unit_test(norms_agree_at_each_length_that_is_held),
        cmocka_unit_test(blocks_that_take_many_rows_agree),
        cmocka_unit_test(norms_of_nothing_do_nothing),
    };
    return cmocka_run_group_tests(tests, open_ref, close_ref);
}
