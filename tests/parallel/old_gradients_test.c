/* A step's gradients are its own: whatever the last one, or another unit in the same slot, left
 * behind in their memory. Each case runs twice and must come to the same bits: with NaN in all of
 * that memory before it is begun, and with zeros that every product is added to. The ranks are
 * threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "gang.h"
#include "old_gradients.h"
#include "tests/effort.h"

#define STEPS 3

/* What the ranks' memory holds, one behind the other: gradients of each step, then the state. */
struct seen {
    struct buf of_ranks[GANG_MAX_RANKS];
};

static void keep(struct seen *seen, int32_t rank, const struct store *s, enum store_part part,
                 size_t elem)
{
    struct store_view view = store_view(s, part);
    for (int32_t i = 0; view.data != NULL && i < view.num_ranges; i++)
        buf_append(&seen->of_ranks[rank],
                   (const char *)view.data + (size_t)view.ranges[i].at * elem,
                   (size_t)view.ranges[i].numel * elem);
}

/* Of the wide type: fp64 on fp64, else fp32. */
static size_t wide_of(const Plan *plan)
{
    return strcmp(plan->spec->training->precision, "fp64") == 0 ? 8 : 4;
}

struct watcher {
    struct seen seen;
    const Plan *plan;
};

static void see_gradients(void *arg, int32_t rank, int64_t step, const struct param_table *table,
                          const struct axes *axes, const struct store *s)
{
    struct watcher *w = arg;
    (void)step;
    (void)table;
    (void)axes;
    keep(&w->seen, rank, s, STORE_GRADS, wide_of(w->plan));
}

static void see_state(void *arg, int32_t rank, int64_t step, const struct param_table *table,
                      const struct axes *axes, const struct store *s)
{
    struct watcher *w = arg;
    (void)step;
    (void)table;
    (void)axes;
    keep(&w->seen, rank, s, STORE_MASTERS, wide_of(w->plan));
    keep(&w->seen, rank, s, STORE_EXP_AVG, wide_of(w->plan));
    keep(&w->seen, rank, s, STORE_EXP_AVG_SQ, wide_of(w->plan));
}

static void run(struct gang *g, struct watcher *w, const struct gang_spec *spec, const char *old)
{
    static struct rank_observer observers[2];
    struct rank_observer *o = &observers[strcmp(old, OLD_NAN) == 0];
    *o = (struct rank_observer){.arg = w, .gradients = see_gradients, .state = see_state};
    *w = (struct watcher){.plan = gang_plan(spec)};
    *g = (struct gang){.plan = w->plan, .observer = o};
    g->queued_compute = strcmp(spec->backend, "ref") == 0;
    assert_int_equal(setenv(OLD_GRADIENTS, old, 1), 0);
    gang_run_well(g);
    assert_int_equal(unsetenv(OLD_GRADIENTS), 0);
}

static void check_same(const struct watcher *nans, const struct watcher *zeros, int rank,
                       const char *what)
{
    const struct buf *a = &nans->seen.of_ranks[rank], *b = &zeros->seen.of_ranks[rank];
    assert_true(a->len > 0 && a->len == b->len);
    size_t elem = wide_of(nans->plan);
    for (size_t i = 0; i < a->len; i += elem)
        if (memcmp(a->data + i, b->data + i, elem) != 0)
            fail_msg("%s: rank %d: number %zu of %zu differs", what, rank, i / elem, a->len / elem);
}

static void check(struct gang_spec spec, const char *what)
{
    static struct gang gangs[2];
    static struct watcher watchers[2];
    spec.backend = spec.backend != NULL ? spec.backend : "ref";
    spec.steps = STEPS;
    run(&gangs[0], &watchers[0], &spec, OLD_NAN);
    run(&gangs[1], &watchers[1], &spec, OLD_ZERO);
    for (int i = 0; i < STEPS; i++) {
        assert_memory_equal(&gangs[0].steps[i].loss, &gangs[1].steps[i].loss, sizeof(double));
        assert_memory_equal(&gangs[0].steps[i].grad_norm, &gangs[1].steps[i].grad_norm,
                            sizeof(double));
    }
    for (int r = 0; r < watchers[0].plan->mesh->num_ranks; r++)
        check_same(&watchers[0], &watchers[1], r, what);
    for (int i = 0; i < 2; i++) {
        plan__free_unpacked((Plan *)(uintptr_t)watchers[i].plan, NULL);
        for (int r = 0; r < GANG_MAX_RANKS; r++)
            buf_free(&watchers[i].seen.of_ranks[r]);
    }
}

/* Biases, norms of heads, learned positions beyond T, a head that is the embedding: of each family,
 * with one micro-batch a step and with several. */
static void every_family_begins_anew(void **state)
{
    (void)state;
    static const struct golden *const all[] = {&golden_tied, &golden_gpt2, &golden_tiny,
                                               &golden_qwen2, &golden_qwen3};
    static const char *const backends[][2] = {
        {"ref", "fp64"}, {"cpu", "bf16"}, {"cpu", "fp32"}, {"ref", "bf16"}};
    int num = effort(5, 5, 2);
    for (int i = 0; i < num; i++) {
        struct gang_spec spec = {.golden = all[i]};
        for (int j = 0; j < effort(4, 2, 1); j++) {
            spec.backend = backends[j][0];
            spec.precision = backends[j][1];
            for (spec.micro = 1; spec.micro <= all[i]->batch; spec.micro *= all[i]->batch)
                check(spec, all[i]->name);
        }
    }
}

/* Slots that units take turns in, shards, sums over data ranks; several micro-batches a step. */
static void every_zero_stage_does(void **state)
{
    (void)state;
    char what[64];
    for (int stage = 0; stage <= 3; stage += effort(1, 1, 2)) {
        struct gang_spec spec = {
            .golden = &golden_tied, .batch = 4, .data = 2, .micro = 1, .zero_stage = stage};
        snprintf(what, sizeof(what), "tied, ZeRO-%d", stage);
        check(spec, what);
        spec.golden = &golden_gpt2;
        spec.backend = "cpu";
        spec.precision = "bf16";
        snprintf(what, sizeof(what), "gpt2, ZeRO-%d", stage);
        check(spec, what);
    }
    struct gang_spec hybrid = {.golden = &golden_tied,
                               .batch = 8,
                               .data = 4,
                               .micro = 1,
                               .zero_stage = 3,
                               .shard_size = 2};
    check(hybrid, "hybrid");
}

/* Parts of sums over tensor ranks, KV heads on two of them, rows of the vocabulary that nobody
 * has. */
static void tensor_ranks_do(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage += effort(1, 1, 3)) {
        struct gang_spec spec = {.golden = &golden_tied,
                                 .batch = 4,
                                 .data = 2,
                                 .tensor = 2,
                                 .micro = 1,
                                 .zero_stage = stage,
                                 .sequence_parallel = stage % 2 == 1};
        check(spec, "tied, tensor 2");
        spec.golden = &golden_gpt2;
        check(spec, "gpt2, tensor 2");
    }
    check((struct gang_spec){.golden = &golden_tiny, .tensor = 8, .micro = 2}, "llama, tensor 8");
}

/* Two rows of four have no target. */
static void write_rows(const char *path)
{
    struct buf b = {0};
    for (int i = 0; i < 4 * STEPS; i++) {
        bool has_targets = i % 4 < 2;
        buf_puts(&b, "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8], \"labels\": [");
        for (int j = 0; j < 8; j++)
            buf_printf(&b, "%s%d", j > 0 ? ", " : "", has_targets ? (i + j) % 9 + 1 : -100);
        buf_puts(&b, "]}\n");
    }
    assert_int_equal(fs_write_atomic(path, b.data, b.len, 0600, NULL), 0);
    buf_free(&b);
}

/* A rank whose rows have no target has a gradient of zeros. */
static void a_rank_without_a_target_has_zeros(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), path[512];
    fs_join(path, sizeof(path), dir, "rows.jsonl");
    write_rows(path);
    for (int stage = 0; stage <= 3; stage += effort(1, 1, 3)) {
        struct gang_spec spec = {.golden = &golden_tied,
                                 .data_path = path,
                                 .format = "tokenized-jsonl",
                                 .batch = 4,
                                 .data = 2,
                                 .micro = 1,
                                 .zero_stage = stage};
        check(spec, "no targets");
    }
    gang_remove_dir(dir);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_begins_anew),
        cmocka_unit_test(every_zero_stage_does),
        cmocka_unit_test(tensor_ranks_do),
        cmocka_unit_test(a_rank_without_a_target_has_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
