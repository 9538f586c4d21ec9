/* bf16 weights with fp32 masters, shared out or not. That each rank's weights are the masters
 * rounded, wherever they lie, every recorded run looks at by itself (record.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "shapes.h"
#include "tests/effort.h"

#define ADAMW "name: adamw, lr: 0.01, betas: [0.9, 0.95], weight_decay: 0.1"

struct layout {
    int64_t data, tensor, zero_stage, shard_size, micro;
    bool sequence_parallel;
};

static struct gang_spec spec_of(const struct shape_files *f, const struct layout *l)
{
    return (struct gang_spec){
        .golden = &f->sizes,
        .model_path = f->dir,
        .data_path = f->tokens,
        .precision = "bf16",
        .lr_schedule = "warmup_steps: 0, decay: constant",
        .optimizer = ADAMW,
        .clip = "0",
        .steps = 4,
        .data = l->data,
        .tensor = l->tensor,
        .zero_stage = l->zero_stage,
        .shard_size = l->shard_size,
        .micro = l->micro,
        .sequence_parallel = l->sequence_parallel,
    };
}

static const char *words_of(const struct layout *l)
{
    static char words[160];
    snprintf(words, sizeof(words), "bf16, data %lld, tensor %lld, zero_stage %lld, shard_size %lld",
             (long long)l->data, (long long)l->tensor, (long long)l->zero_stage,
             (long long)l->shard_size);
    return words;
}

static void run_layout(struct run *r, const struct shape_files *f, const struct layout *l)
{
    struct gang_spec spec = spec_of(f, l);
    run_well(r, &spec, NULL, words_of(l));
}

/* ---- stages -----------------------------------------------------------------------------------
 */

static void assert_same_bits(const struct whole *a, const struct whole *b, const char *words)
{
    for (int32_t i = 0; i < a->num; i++) {
        const struct whole_tensor *x = &a->tensors[i], *y = whole_find(b, x->name);
        if (memcmp(x->values, y->values, (size_t)x->numel * sizeof(*x->values)) != 0)
            fail_msg("%s: %s isn't the same as with stage 0", words, x->name);
    }
}

/* TRAINING section 5, 23. With one micro-batch a rank all stages add the same gradients in the same
 * order, and what they share out is no different for it: to the bit. The norm alone is added up in
 * another order; nothing is clipped. */
static void check_stages(const struct shape *shape, int64_t data, int64_t tensor, bool sequence)
{
    struct shape_files files;
    struct run plain;
    shape_write(&files, shape, NULL, NULL);
    struct layout l = {.data = data,
                       .tensor = tensor,
                       .micro = shape->batch / data,
                       .sequence_parallel = sequence};
    run_layout(&plain, &files, &l);
    for (l.zero_stage = 1; l.zero_stage <= 3; l.zero_stage++) {
        struct run r;
        run_layout(&r, &files, &l);
        compare_curves(words_of(&l), &plain.gang, &r.gang, 0.0, 1e-12);
        assert_same_bits(&plain.record.grads, &r.record.grads, words_of(&l));
        assert_same_bits(&plain.record.weights, &r.record.weights, words_of(&l));
        assert_same_bits(&plain.record.exp_avg, &r.record.exp_avg, words_of(&l));
        assert_same_bits(&plain.record.exp_avg_sq, &r.record.exp_avg_sq, words_of(&l));
        run_free(&r);
    }
    run_free(&plain);
    shape_remove(&files);
}

static void zero_stages_agree_to_the_bit(void **state)
{
    (void)state;
    check_stages(&shapes[0], 2, 1, false);
    if (effort(1, 1, 0)) {
        check_stages(&shapes[1], 3, 2, true);
        check_stages(&shapes[2], 5, 1, false);
        check_stages(&shapes[3], 4, 3, false);
    }
}

/* ---- masters ----------------------------------------------------------------------------------
 */

static void subtract(struct whole *w, const struct whole *start)
{
    for (int32_t i = 0; i < w->num; i++) {
        const struct whole_tensor *from = whole_find(start, w->tensors[i].name);
        for (int64_t j = 0; j < from->numel; j++)
            w->tensors[i].values[j] -= from->values[j];
    }
}

/* Of all elements together. */
static double distance(const struct whole *a, const struct whole *b)
{
    double apart = 0.0, all = 0.0;
    for (int32_t i = 0; i < a->num; i++) {
        const struct whole_tensor *x = &a->tensors[i], *y = whole_find(b, x->name);
        for (int64_t j = 0; j < x->numel; j++) {
            apart += (x->values[j] - y->values[j]) * (x->values[j] - y->values[j]);
            all += x->values[j] * x->values[j];
        }
    }
    return sqrt(apart / all);
}

#define SMALL_STEPS 12

/* A step changes a weight by far less than bf16 has digits for; twelve of them too. In the masters
 * they add up to what they add up to in fp32, but for the gradients' own rounding. */
static void check_small_steps(const struct shape_files *f, const struct layout *l)
{
    struct run start, wide, mixed;
    struct gang_spec spec = spec_of(f, l);
    spec.optimizer = "name: sgd, lr: 1e-30, weight_decay: 0";
    spec.steps = 1;
    run_well(&start, &spec, NULL, "no step at all");
    spec.optimizer = "name: sgd, lr: 1e-5, weight_decay: 0";
    spec.steps = SMALL_STEPS;
    run_well(&mixed, &spec, NULL, words_of(l));
    spec.precision = "fp32";
    run_well(&wide, &spec, NULL, "fp32");
    subtract(&wide.record.weights, &start.record.weights);
    subtract(&mixed.record.weights, &start.record.weights);
    double off = distance(&wide.record.weights, &mixed.record.weights);
    if (effort_is_set("TANDEM_VERBOSE"))
        print_message("%s: small steps off by %.1e\n", words_of(l), off);
    if (!(off <= 0.1))
        fail_msg("%s: %d small steps are off by %.2e of their sum", words_of(l), SMALL_STEPS, off);
    run_free(&start);
    run_free(&wide);
    run_free(&mixed);
}

static void small_steps_add_up_in_the_masters(void **state)
{
    (void)state;
    static const struct layout layouts[] = {
        {.data = 1, .tensor = 1, .micro = 4},
        {.data = 2, .tensor = 1, .micro = 6, .zero_stage = 1},
        {.data = 4, .tensor = 1, .micro = 3, .zero_stage = 2, .shard_size = 2},
        {.data = 2, .tensor = 3, .micro = 3, .zero_stage = 3, .sequence_parallel = true},
    };
    struct shape_files files;
    shape_write(&files, &shapes[0], NULL, NULL);
    for (size_t i = (size_t)effort(0, 0, 1); i < (size_t)effort(4, 4, 2); i++)
        check_small_steps(&files, &layouts[i]);
    shape_remove(&files);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_stages_agree_to_the_bit),
        cmocka_unit_test(small_steps_add_up_in_the_masters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
