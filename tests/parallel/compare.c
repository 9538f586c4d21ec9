#include "compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check(double apart, double most, const char *what, const char *name, double *worst,
                  const char *words)
{
    if (!(apart <= *worst))
        *worst = apart;
    if (!(apart <= most))
        fail_msg("%s: %s%s off by %.2e", words, what, name, apart);
}

static void check_curves(struct compare_worst *w, const char *words, const struct gang *one,
                         const struct gang *many, double loss, double norm)
{
    if (one->num_steps < 1 || many->num_steps != one->num_steps)
        fail_msg("%s: %lld steps of %lld", words, (long long)many->num_steps,
                 (long long)one->num_steps);
    for (int64_t i = 0; i < one->num_steps; i++) {
        const StepMetrics *x = &one->steps[i], *y = &many->steps[i];
        char step[32];
        snprintf(step, sizeof(step), " of step %lld", (long long)i + 1);
        check(fabs(y->loss - x->loss) / x->loss, loss, "loss", step, &w->loss, words);
        check(fabs(y->grad_norm - x->grad_norm) / x->grad_norm, norm, "norm", step, &w->norm,
              words);
    }
}

void compare_curves(const char *words, const struct gang *one, const struct gang *many, double loss,
                    double norm)
{
    struct compare_worst unused = {0};
    check_curves(&unused, words, one, many, loss, norm);
}

/* Softmax doesn't see a bias of all keys alike: its gradient is rounding alone, which Adam makes
 * steps of. Their moments are compared, and what they do to everything else. */
static bool is_key_bias(const char *name)
{
    return strstr(name, "k_proj.bias") != NULL || strstr(name, "c_attn.bias") != NULL;
}

void compare_runs(struct compare_worst *w, const char *words, const struct run *one_run,
                  const struct run *many_run)
{
    const struct record *one = &one_run->record, *many = &many_run->record;
    check_curves(w, words, &one_run->gang, &many_run->gang, COMPARE_SAME, COMPARE_SAME);
    struct whole_distance d = whole_compare(&one->grads, &many->grads, NULL);
    check(d.l2, COMPARE_SAME, "gradient of ", d.l2_name, &w->grads_l2, words);
    check(d.max, COMPARE_SAME, "elements of the gradient of ", d.max_name, &w->grads_max, words);
    d = whole_compare(&one->weights, &many->weights, one->moments ? is_key_bias : NULL);
    check(d.l2, COMPARE_SAME, "weights of ", d.l2_name, &w->weights, words);
    if (one->moments) {
        d = whole_compare(&one->exp_avg, &many->exp_avg, NULL);
        check(d.l2, COMPARE_SAME, "first moment of ", d.l2_name, &w->exp_avg, words);
        d = whole_compare(&one->exp_avg_sq, &many->exp_avg_sq, NULL);
        check(d.l2, COMPARE_SAME, "second moment of ", d.l2_name, &w->exp_avg_sq, words);
    }
}

/* ---- in bf16 ----------------------------------------------------------------------------------
 *
 * Half a unit in the last place is u = 2^-9 of a number. One tensor rank rounds what many do, so
 * without cut matrices only the fp32 sums of gradients come in another order: a few times 2^-24 of
 * what is added up. Where matrices are cut each rank's part is rounded before they are summed, the
 * sum again: some ten such roundings in each block's two passes, each by u / sqrt(3) on the whole,
 * give 1 % behind two blocks, and what cancels in a gradient makes a few of that. A part that is
 * missing, or there twice, is off by 1 / sqrt(ranks), 30 % of ten. Of a gradient that is next to
 * nothing (a key's bias) the rounding of the others' is seen. */
struct rounded {
    double loss, norm, grads, beside; /* beside: of all gradients, for any one */
    double later;                     /* loss, and the weights' movement */
};
static const struct rounded as_one = {1e-6, 1e-5, 1e-5, 1e-6, 1e-3};
static const struct rounded cut = {2e-3, 1e-2, 0.05, 2e-3, 5e-3};

static double norm_of(const struct whole_tensor *a, const struct whole_tensor *b)
{
    double sum = 0.0;
    for (int64_t i = 0; i < a->numel; i++) {
        double x = a->values[i] - (b != NULL ? b->values[i] : 0.0);
        sum += x * x;
    }
    return sqrt(sum);
}

static void check_rounded(const struct rounded *bar, const struct whole *one,
                          const struct whole *many, double *worst, const char *words)
{
    double all = 0.0;
    for (int32_t i = 0; i < one->num; i++)
        all = hypot(all, norm_of(&one->tensors[i], NULL));
    for (int32_t i = 0; i < one->num; i++) {
        const struct whole_tensor *x = &one->tensors[i];
        double off = norm_of(x, whole_find(many, x->name));
        double most = bar->grads * norm_of(x, NULL) + bar->beside * all;
        check(off / most * bar->grads, bar->grads, "gradient of ", x->name, worst, words);
    }
}

void compare_rounded(struct compare_worst *w, const char *words, const struct run *one_run,
                     const struct run *many_run)
{
    const struct rounded *bar = many_run->plan->mesh->tensor > 1 ? &cut : &as_one;
    const StepMetrics *one = one_run->gang.steps, *many = many_run->gang.steps;
    check(fabs(many->loss - one->loss) / one->loss, bar->loss, "loss", " of step 1", &w->loss,
          words);
    check(fabs(many->grad_norm - one->grad_norm) / one->grad_norm, bar->norm, "norm", " of step 1",
          &w->norm, words);
    check_rounded(bar, &one_run->record.grads, &many_run->record.grads, &w->grads_l2, words);
    for (int64_t i = 1; i < one_run->gang.num_steps; i++)
        check(fabs(many[i].loss - one[i].loss) / one[i].loss, bar->later, "loss",
              " of a later step", &w->later, words);
    if (one_run->record.moments) /* Adam makes whole steps of what is rounding alone */
        return;
    struct whole_distance d =
        whole_compare(&one_run->record.weights, &many_run->record.weights, NULL);
    check(d.l2, bar->later, "weights of ", d.l2_name, &w->weights, words);
}

void compare_print(const struct compare_worst *w)
{
    print_message("largest distances: loss %.1e, norm %.1e, gradients %.1e (elements %.1e), "
                  "weights %.1e, moments %.1e and %.1e, later losses %.1e\n",
                  w->loss, w->norm, w->grads_l2, w->grads_max, w->weights, w->exp_avg,
                  w->exp_avg_sq, w->later);
}
