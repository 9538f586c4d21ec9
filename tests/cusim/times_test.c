/* Times of operations (kernels/cuda/times.h), on the simulator. */
#include "tests/cusim/side.h"

#include <stdio.h>
#include <unistd.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/front.h"
#include "kernels/cuda/times.h"

#define N 64

static struct device *dev;
static struct stream *compute;
static struct error err;
static char *x, prefix[64], path[96];

static int open_all(void **state)
{
    (void)state;
    snprintf(prefix, sizeof prefix, "times-%d", (int)getpid());
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    cusim_schedule(CUSIM_FORWARD, CUSIM_LAZY, 1);
    GOOD(cuda_device_open(0, &dev, &err));
    GOOD(dev->ops->stream_new(dev, STREAM_INLINE, &compute, &err));
    x = dev->ops->alloc(dev, 3 * N * N * sizeof(float), MEM_DEVICE);
    return x != NULL ? 0 : -1;
}

static void close_all(void)
{
    GOOD(dev->ops->stream_sync(dev, compute, &err));
    dev->ops->free(dev, x);
    dev->ops->stream_free(dev, compute);
    dev->ops->close(dev);
}

static int tidy(void **state)
{
    (void)state;
    unsetenv("TANDEM_CUDA_TIMES");
    unlink(path);
    return 0;
}

static char *read_file(void)
{
    static char text[8192];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

/* Not asked for, the table is the plain one: nothing is in the way. */
static void without_the_variable_there_is_nothing(void **state)
{
    (void)state;
    unsetenv("TANDEM_CUDA_TIMES");
    assert_ptr_equal(times_kernels(), &cuda_kernels);
    setenv("TANDEM_CUDA_TIMES", "", 1);
    assert_ptr_equal(times_kernels(), &cuda_kernels);
    close_all();
    assert_int_equal(access(path, F_OK), -1);
}

/* Each operation has a row, products one for each shape; what was captured is counted, and neither
 * it nor more calls than are kept at once do any harm. */
static void each_kind_of_call_has_its_row(void **state)
{
    (void)state;
    char why[200];
    struct graph *graph = NULL;
    setenv("TANDEM_CUDA_TIMES", prefix, 1);
    const struct kernels *k = times_kernels();
    assert_ptr_not_equal(k, &cuda_kernels);
    struct gemm_args a = {.m = N,
                          .n = 32,
                          .k = 16,
                          .alpha = 1,
                          .a = x,
                          .lda = 16,
                          .b = x + N * N * 4,
                          .ldb = 32,
                          .c = x + 2 * N * N * 4,
                          .ldc = 32,
                          .c_type = DTYPE_F32};
    GOOD(k->gemm(dev, compute, DTYPE_F32, &a, &err));
    GOOD(k->gemm(dev, compute, DTYPE_F32, &a, &err));
    a.m = 8;
    GOOD(k->gemm(dev, compute, DTYPE_F32, &a, &err));
    GOOD(dev->ops->capture_begin(dev, compute, &err));
    GOOD(k->scale(dev, compute, DTYPE_F32, x, 0.5, N, &err));
    GOOD(dev->ops->capture_end(dev, compute, &graph, why, sizeof why, &err));
    assert_non_null(graph);
    dev->ops->graph_free(dev, graph);
    for (int i = 0; i < TIMES_PENDING + 10; i++) {
        GOOD(k->add(dev, compute, DTYPE_F32, x, x, x, 8, &err));
    }
    close_all();
    char *text = read_file();
    assert_non_null(strstr(text, "{\"op\": \"gemm\", \"what\": \"f32 64x32x16 nn fused\", "
                                 "\"count\": 2, \"first_ms\": "));
    assert_non_null(strstr(text, "\"f32 8x32x16 nn fused\", \"count\": 1, "));
    assert_non_null(strstr(text, "\"flops\": 131072}")); /* 2 x 2 x 64 x 32 x 16 */
    assert_non_null(strstr(text, "{\"op\": \"add\", \"what\": \"f32\", \"count\": 1034, "));
    assert_non_null(strstr(text, "{\"op\": \"\", \"captured\": 1, \"failed\": 0}"));
    assert_null(strstr(text, "\"scale\""));
}

/* An operation that a table with times forgot would be timed as nothing. */
static void all_operations_are_timed(void **state)
{
    (void)state;
    setenv("TANDEM_CUDA_TIMES", prefix, 1);
    const struct kernels *k = times_kernels();
    const void *const *plain = (const void *const *)(const void *)&cuda_kernels;
    const void *const *timed = (const void *const *)(const void *)k;
    int num_same = 0;
    for (size_t i = 1; i < sizeof *k / sizeof(void *); i++) { /* behind the name */
        assert_non_null(timed[i]);
        num_same += plain[i] == timed[i];
    }
    assert_int_equal(num_same, 5); /* questions for sizes of workspaces */
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_the_variable_there_is_nothing, open_all, tidy),
        cmocka_unit_test_setup_teardown(each_kind_of_call_has_its_row, open_all, tidy),
        cmocka_unit_test_setup_teardown(all_operations_are_timed, open_all, tidy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
