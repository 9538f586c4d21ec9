/* Gradients of one batch that two ranks have summed against Hugging Face's, in fp64, parameter by
 * parameter; on one rank too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gang.h"
#include "plan/params.h"
#include "reference.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/comm/comm_host.h"
#include "runtime/layers/model.h"
#include "runtime/parallel/store.h"

/* The stored batch holds fp32 copies of fp64 numbers. */
#define TOLERANCE 2e-7

/* ---- one rank's forward and backward ----------------------------------------------------------
 */

struct share {
    const Plan *plan;
    const struct reference *batch;
    const char *model_path;
    int rank, segment_fd;
    double *grads; /* out: the sums, flat; the test's */
    double loss;   /* out: over all ranks */
    pthread_t thread;
};

/* The stage's buckets in ready order, then the loss. */
static void reduce(struct share *s, struct store *store, double *loss)
{
    const Stage *stage = s->plan->stages[0];
    struct error err = {0};
    for (size_t i = 0; i < stage->n_buckets; i++)
        ASSERT(store_reduce_bucket(store, (int32_t)i, true, &err) == 0);
    ASSERT(store_reduce_words(store, loss, 1, "loss", &err) == 0);
    ASSERT(store_wait(store, &err) == 0);
}

static void *run_share(void *arg)
{
    struct share *s = arg;
    const TrainingSpec *training = s->plan->spec->training;
    int32_t num_ranks = (int32_t)s->plan->mesh->num_ranks;
    struct error err = {0};
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
    struct param_table table;
    struct comm_host_world *world = NULL;
    struct axes axes;
    ASSERT(kernels_open(&(struct kernels_options){"ref", 1, 0}, &dev, &kernels, &err) == 0);
    ASSERT(dev->ops->stream_new(dev, STREAM_INLINE, &stream, &err) == 0);
    ASSERT(params_expand(s->plan, 0, &table, &err) == 0);
    if (num_ranks > 1)
        ASSERT(comm_host_open(&world, s->segment_fd, s->rank, num_ranks, 60000, &err) == 0);
    struct comm_world *any = comm_host_as_world(world);
    struct axes_means means = {.world = any, .dev = dev, .host_world = any, .host = dev};
    ASSERT(axes_open(&axes, s->plan, s->rank, &means, &err) == 0);
    struct arenas *arenas;
    ASSERT(arenas_open(&arenas, NULL, dev, any, &err) == 0);
    struct store_options store_options = {
        .dev = dev,
        .kernels = kernels,
        .compute = stream,
        .axes = &axes,
        .arenas = arenas,
        .plan = s->plan,
        .stage = s->plan->stages[0],
        .table = &table,
        .dtype = DTYPE_F64,
    };
    struct store *store;
    ASSERT(store_new(&store, &store_options, &err) == 0);
    void *weights = store_view(store, STORE_WEIGHTS).data;
    void *grads = store_view(store, STORE_GRADS).data;
    double *loss = dev->ops->alloc(dev, sizeof(*loss), MEM_DEVICE);
    ASSERT(loss != NULL && store_begin_step(store, &err) == 0);
    struct ckpt_state state = {.table = &table, .dtype = DTYPE_F64, .weights = {.data = weights}};
    ASSERT(ckpt_load_hf(NULL, s->model_path, &state, &err) == 0);

    struct model_options model_options = {
        .config = s->plan->model->config,
        .table = &table,
        .dtype = DTYPE_F64,
        .micro_batch_size = training->micro_batch_size,
        .seq_len = training->seq_len,
        .dev = dev,
        .kernels = kernels,
        .stream = stream,
        .trains = true,
    };
    struct model *model;
    ASSERT(model_new(&model, &model_options, &err) == 0);
    model_bind_whole(model, weights, grads);
    int32_t num_units = (int32_t)s->plan->model->config->num_hidden_layers + 2;
    int64_t begin = s->rank * training->micro_batch_size * training->seq_len;
    const struct batch batch = {.ids = s->batch->ids + begin, .targets = s->batch->targets + begin};
    model_set_batch(model, &batch);
    double dloss = 1.0 / (double)s->batch->num_targets;
    ASSERT(model_forward(model, 0, num_units, dloss, loss, &err) == 0);
    ASSERT(model_backward(model, 0, num_units, true, &err) == 0);
    reduce(s, store, loss);
    s->loss = *loss * dloss;
    memcpy(s->grads, grads, (size_t)table.flat_numel * sizeof(double));

    store_free(store);
    model_free(model);
    arenas_free(arenas);
    axes_close(&axes);
    comm_host_close(world);
    dev->ops->free(dev, loss);
    dev->ops->stream_free(dev, stream);
    params_free(&table);
    dev->ops->close(dev);
    return NULL;
}

/* Gradients of the batch on `data` ranks; the caller frees. *plan as made for it. */
static double *compute_grads(const struct golden *golden, const struct reference *batch,
                             int64_t data, Plan **plan, double *loss)
{
    struct gang_spec spec = {
        .golden = golden, .data = data, .batch = REFERENCE_ROWS, .micro = REFERENCE_ROWS / data};
    struct share shares[2] = {0};
    struct error err = {0};
    char model_path[512];
    int fd = -1;
    *plan = gang_plan(&spec);
    snprintf(model_path, sizeof(model_path), "%s", golden_path(golden, ""));
    if (data > 1)
        assert_int_equal(
            comm_host_segment_new((int32_t)data, (size_t)(*plan)->memory->shared_bytes, &fd, &err),
            0);
    size_t n = (size_t)(*plan)->stages[0]->flat_numel;
    for (int i = 0; i < data; i++) {
        shares[i] = (struct share){
            .plan = *plan, .batch = batch, .model_path = model_path, .rank = i, .segment_fd = fd};
        shares[i].grads = malloc(n * sizeof(double));
        assert_non_null(shares[i].grads);
        assert_int_equal(pthread_create(&shares[i].thread, NULL, run_share, &shares[i]), 0);
    }
    for (int i = 0; i < data; i++)
        pthread_join(shares[i].thread, NULL);
    if (data > 1) {
        /* All ranks hold the same bits. */
        assert_memory_equal(shares[0].grads, shares[1].grads, n * sizeof(double));
        assert_true(shares[0].loss == shares[1].loss);
        free(shares[1].grads);
        close(fd);
    }
    *loss = shares[0].loss;
    return shares[0].grads;
}

/* ---- comparisons ------------------------------------------------------------------------------
 */

static void check_param(const struct reference *batch, const struct param *p, const double *grads)
{
    char name[PARAM_NAME_MAX + 8];
    snprintf(name, sizeof(name), "grad.%s", p->name);
    double *want = reference_read(batch, name, p->numel);
    double off = reference_off(grads + p->offset, want, p->numel);
    if (!(off <= TOLERANCE))
        fail_msg("%s: off by %.2e", name, off);
    free(want);
}

static void check_grads(const struct golden *golden, int64_t data)
{
    struct reference batch = reference_open(golden);
    Plan *plan;
    double loss;
    struct error err = {0};
    double *grads = compute_grads(golden, &batch, data, &plan, &loss);
    double *want_loss = reference_read(&batch, "loss_f64", 1);
    assert_true(fabs(loss / want_loss[0] - 1.0) < 1e-12);
    free(want_loss);
    struct param_table table;
    assert_int_equal(params_expand(plan, 0, &table, &err), 0);
    assert_true(table.num_params > 0);
    for (int32_t i = 0; i < table.num_params; i++)
        check_param(&batch, &table.params[i], grads);
    params_free(&table);
    free(grads);
    plan__free_unpacked(plan, NULL);
    reference_close(&batch);
}

static const struct golden *const all_cases[] = {&golden_tiny, &golden_tied, &golden_deep,
                                                 &golden_deep_tied};
#define NUM_CASES (sizeof(all_cases) / sizeof(all_cases[0]))

static void gradients_on_one_rank_equal_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++)
        check_grads(all_cases[i], 1);
}

static void gradients_summed_over_two_ranks_equal_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++)
        check_grads(all_cases[i], 2);
}

/* One divisor: sum of losses / sum of targets, also where the ranks' shares differ. */
static void ranks_with_unequal_targets_weigh_them_equally(void **state)
{
    (void)state;
    struct reference batch = reference_open(&golden_tiny);
    for (int64_t i = 0; i < golden_tiny.seq_len - 3; i++) {
        batch.targets[i] = REFERENCE_IGNORED;
        batch.num_targets--;
    }
    Plan *one_plan, *two_plan;
    double one_loss, two_loss;
    double *one = compute_grads(&golden_tiny, &batch, 1, &one_plan, &one_loss);
    double *two = compute_grads(&golden_tiny, &batch, 2, &two_plan, &two_loss);
    assert_true(fabs(one_loss / two_loss - 1.0) < 1e-13);
    assert_true(reference_off(two, one, one_plan->stages[0]->flat_numel) < 1e-13);
    free(one);
    free(two);
    plan__free_unpacked(one_plan, NULL);
    plan__free_unpacked(two_plan, NULL);
    reference_close(&batch);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_on_one_rank_equal_the_reference),
        cmocka_unit_test(gradients_summed_over_two_ranks_equal_the_reference),
        cmocka_unit_test(ranks_with_unequal_targets_weigh_them_equally),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
