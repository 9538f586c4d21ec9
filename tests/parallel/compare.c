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

void compare_print(const struct compare_worst *w)
{
    print_message("largest distances: loss %.1e, norm %.1e, gradients %.1e (elements %.1e), "
                  "weights %.1e, moments %.1e and %.1e\n",
                  w->loss, w->norm, w->grads_l2, w->grads_max, w->weights, w->exp_avg,
                  w->exp_avg_sq);
}
