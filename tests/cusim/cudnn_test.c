/* Which of cuDNN and our own kernels computes attention, and what cuDNN is given: with a fake of
 * the library (TANDEM_CUDNN names it) on a simulated device. */
#include "tests/cusim/side.h"

#include <dlfcn.h>
#include <math.h>

#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/front.h"
#include "kernels/workspace.h"
#include "tests/cusim/fake_cudnn.h"

static void *library;
static struct fake_cudnn *fake;
static struct error err;

_Static_assert(FAKE_CUDNN_FIRST_NUMBER == CUDNN_SCALE, "the fake counts as the graph does");

/* A device, and one problem on it. */
struct side {
    struct device *dev;
    struct stream *s;
    struct attention_args a;
    void *mem[16];
    int num;
};

static void *take(struct side *x, int64_t numbers, size_t size)
{
    void *mem = x->dev->ops->alloc(x->dev, (size_t)numbers * size, MEM_DEVICE);
    assert_true(mem && x->num < (int)(sizeof x->mem / sizeof *x->mem));
    x->mem[x->num++] = mem;
    return mem;
}

static struct side side_open(const char *choice)
{
    struct side x = {.a = {.b = 1, .t = 20, .h = 2, .kv = 1, .e = 32, .scale = 0.25}};
    setenv("TANDEM_CUDA_ATTENTION", choice, 1);
    GOOD(cuda_device_open(0, &x.dev, &err));
    GOOD(x.dev->ops->stream_new(x.dev, STREAM_INLINE, &x.s, &err));
    const struct attention_args *a = &x.a;
    int64_t q = a->b * a->t * a->h * a->e, k = a->b * a->t * a->kv * a->e;
    x.a.q = take(&x, q, 2);
    x.a.k = take(&x, k, 2);
    x.a.v = take(&x, k, 2);
    x.a.o = take(&x, q, 2);
    x.a.d_o = take(&x, q, 2);
    x.a.dq = take(&x, q, 2);
    x.a.dk = take(&x, k, 2);
    x.a.dv = take(&x, k, 2);
    x.a.lse = take(&x, a->b * a->h * a->t, 4);
    return x;
}

/* As a model does it when it is opened. */
static void side_prepare(struct side *x, enum dtype t)
{
    const struct attention_args *a = &x->a;
    size_t bytes = cuda_kernels.attention_workspace(x->dev, t, a->b, a->t, a->h, a->kv, a->e);
    assert_int_equal(bytes, workspace_cuda_attention(a->b, a->t, a->h, a->kv, a->e));
    x->a.workspace = take(x, (int64_t)bytes, 1);
}

static void side_close(struct side *x)
{
    GOOD(x->dev->ops->stream_sync(x->dev, x->s, &err));
    x->dev->ops->stream_free(x->dev, x->s);
    for (int i = 0; i < x->num; i++) {
        x->dev->ops->free(x->dev, x->mem[i]);
    }
    x->dev->ops->close(x->dev);
    unsetenv("TANDEM_CUDA_ATTENTION");
}

static int64_t run(struct side *x, bool backward)
{
    int64_t before = cusim_counted().launches;
    GOOD((backward ? cuda_kernels.attention_bwd
                   : cuda_kernels.attention_fwd)(x->dev, x->s, DTYPE_BF16, &x->a, &err));
    return cusim_counted().launches - before;
}

static const void *given(int64_t id)
{
    for (int i = 0; i < fake->num; i++) {
        if (fake->ids[i] == id) {
            return fake->pointers[i];
        }
    }
    fail_msg("tensor %lld wasn't given", (long long)id);
    return NULL;
}

static int load_fake(void **state)
{
    (void)state;
    library = dlopen(getenv("TANDEM_CUDNN"), RTLD_NOW);
    fake = library ? dlsym(library, "fake_cudnn") : NULL;
    return fake ? 0 : -1;
}

static int unload_fake(void **state)
{
    (void)state;
    return dlclose(library);
}

static int reset(void **state)
{
    (void)state;
    *fake = (struct fake_cudnn){.workspace_bytes = 1000};
    return 0;
}

/* All that was made is gone with the device. */
static int nothing_is_left(void **state)
{
    (void)state;
    return fake->handles || fake->descriptors ? -1 : 0;
}

/* The same numbers must give the same bits, and cuDNN's backward pass adds with atomics. */
static void cudnn_does_the_forward_pass_alone_unless_it_is_asked_for_both(void **state)
{
    (void)state;
    struct side x = side_open("auto");
    side_prepare(&x, DTYPE_BF16);
    assert_int_equal(run(&x, false), 0);
    assert_int_equal(fake->calls, 1);
    assert_true(run(&x, true) > 0);
    assert_int_equal(fake->calls, 1);
    side_close(&x);

    x = side_open("cudnn");
    side_prepare(&x, DTYPE_BF16);
    assert_int_equal(run(&x, false), 0);
    assert_int_equal(run(&x, true), 0);
    assert_int_equal(fake->calls, 3);
    side_close(&x);
}

static void cudnn_is_given_what_the_caller_gave(void **state)
{
    (void)state;
    struct side x = side_open("cudnn");
    side_prepare(&x, DTYPE_BF16);
    int64_t allocations = cusim_counted().allocations;
    run(&x, false);
    assert_ptr_equal(fake->stream, cuda_stream_of(x.s));
    assert_int_equal(fake->num, 7);
    assert_ptr_equal(given(CUDNN_Q), x.a.q);
    assert_ptr_equal(given(CUDNN_K), x.a.k);
    assert_ptr_equal(given(CUDNN_V), x.a.v);
    assert_ptr_equal(given(CUDNN_O), x.a.o);
    assert_ptr_equal(given(CUDNN_LSE), x.a.lse);
    assert_true(fake->numbers[0] == 0.25f && fake->numbers[1] == -INFINITY);
    run(&x, true);
    assert_int_equal(fake->num, 14);
    assert_ptr_equal(given(CUDNN_DO), x.a.d_o);
    assert_ptr_equal(given(CUDNN_DQ), x.a.dq);
    assert_ptr_equal(given(CUDNN_DK), x.a.dk);
    assert_ptr_equal(given(CUDNN_DV), x.a.dv);
    assert_true(fake->numbers[2] == 1);
    /* The engine's 1000 bytes, then what it adds up in, which starts at zero. */
    const char *dots = given(CUDNN_DOTS), *sums = given(CUDNN_SUMS);
    assert_true(dots - (char *)fake->workspace >= 1000 && sums - dots >= 20 * 2 * 4);
    assert_int_equal(cusim_counted().allocations, allocations);
    float first;
    side_get(cuda_stream_of(x.s), &first, sums, sizeof first);
    assert_true(first == 0);
    side_close(&x);
}

static void our_own_kernels_do_what_cudnn_does_not(void **state)
{
    (void)state;
    struct side x = side_open("own");
    side_prepare(&x, DTYPE_BF16);
    assert_true(run(&x, false) > 0);
    side_close(&x);

    x = side_open("auto"); /* nobody asked for a workspace, so nothing was prepared */
    x.a.workspace = take(&x, 4096, 1);
    assert_true(run(&x, false) > 0);
    side_close(&x);

    x = side_open("auto");
    side_prepare(&x, DTYPE_BF16);
    x.a.segments = take(&x, x.a.b * x.a.t, 4);
    assert_true(run(&x, false) > 0);
    x.a.segments = NULL;
    const char *q = x.a.q;
    x.a.q = q + 2;
    x.a.h = x.a.kv = 1;
    assert_true(run(&x, false) > 0);
    side_close(&x);

    x = side_open("auto");
    side_prepare(&x, DTYPE_F32);
    GOOD(cuda_kernels.attention_fwd(x.dev, x.s, DTYPE_BF16, &x.a, &err));
    side_close(&x);
    assert_int_equal(fake->calls, 0);
}

static void a_refusal_of_cudnn_costs_nothing_but_time(void **state)
{
    (void)state;
    fake->refuse_plans = true;
    struct side x = side_open("auto");
    side_prepare(&x, DTYPE_BF16);
    assert_true(run(&x, false) > 0);
    side_close(&x);

    fake->refuse_plans = false;
    fake->workspace_bytes = ((int64_t)1 << 30) + 1;
    x = side_open("auto");
    side_prepare(&x, DTYPE_BF16);
    assert_true(run(&x, false) > 0);
    side_close(&x);

    fake->workspace_bytes = 0;
    x = side_open("cudnn");
    side_prepare(&x, DTYPE_BF16);
    fake->refuse_calls = true;
    assert_true(run(&x, false) > 0);
    assert_true(run(&x, true) > 0);
    fake->refuse_calls = false; /* it isn't asked again */
    assert_true(run(&x, false) > 0);
    side_close(&x);
    assert_int_equal(fake->calls, 0);
}

static void a_library_that_is_not_there_is_done_without(void **state)
{
    (void)state;
    char *named = strdup(getenv("TANDEM_CUDNN"));
    setenv("TANDEM_CUDNN", "/nowhere/libcudnn.so.9", 1);
    struct side x = side_open("auto");
    side_prepare(&x, DTYPE_BF16);
    assert_true(run(&x, false) > 0);
    assert_true(run(&x, true) > 0);
    side_close(&x);
    setenv("TANDEM_CUDNN", named, 1);
    free(named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            cudnn_does_the_forward_pass_alone_unless_it_is_asked_for_both, reset, nothing_is_left),
        cmocka_unit_test_setup_teardown(cudnn_is_given_what_the_caller_gave, reset,
                                        nothing_is_left),
        cmocka_unit_test_setup_teardown(our_own_kernels_do_what_cudnn_does_not, reset,
                                        nothing_is_left),
        cmocka_unit_test_setup_teardown(a_refusal_of_cudnn_costs_nothing_but_time, reset,
                                        nothing_is_left),
        cmocka_unit_test_setup_teardown(a_library_that_is_not_there_is_done_without, reset,
                                        nothing_is_left),
    };
    return cmocka_run_group_tests(tests, load_fake, unload_fake);
}
