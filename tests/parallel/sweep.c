#include "sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NUM_STEPS 3

struct sweep {
    struct shape_files files[NUM_SHAPES];
    struct run one_rank[NUM_SHAPES][2][2][2]; /* by optimizer, clip, packed */
    struct sweep_worst worst;
};

void sweep_open(struct sweep **out)
{
    struct sweep *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    for (int i = 0; i < NUM_SHAPES; i++)
        shape_write(&s->files[i], &shapes[i], NULL, NULL);
    *out = s;
}

void sweep_close(struct sweep *s)
{
    const size_t num = sizeof(s->one_rank) / sizeof(struct run);
    struct run *runs = &s->one_rank[0][0][0][0];
    for (size_t i = 0; i < num; i++)
        if (runs[i].plan != NULL)
            run_free(&runs[i]);
    for (int i = 0; i < NUM_SHAPES; i++)
        shape_remove(&s->files[i]);
    free(s);
}

const struct shape_files *sweep_files(const struct sweep *s, const struct layout *l)
{
    return &s->files[l->values[FACTOR_SHAPE]];
}

const struct sweep_worst *sweep_worst(const struct sweep *s)
{
    return &s->worst;
}

static struct run *one_rank(struct sweep *s, const struct layout *l)
{
    const int *v = l->values;
    struct run *r =
        &s->one_rank[v[FACTOR_SHAPE]][v[FACTOR_OPTIMIZER]][v[FACTOR_CLIP]][v[FACTOR_PACKED]];
    if (r->plan == NULL) {
        struct gang_spec spec = layout_one_rank(l, sweep_files(s, l));
        run_well(r, &spec, NULL, "one rank");
    }
    return r;
}

/* ---- distances --------------------------------------------------------------------------------
 */

static void check(double apart, const char *what, const char *name, double *worst,
                  const struct layout *l)
{
    if (!(apart <= *worst))
        *worst = apart;
    if (!(apart <= SWEEP_SAME))
        fail_msg("%s: %s%s off by %.2e", layout_words(l), what, name, apart);
}

static void check_curves(struct sweep_worst *w, const struct layout *l, const struct gang *one,
                         const struct gang *many)
{
    if (one->num_steps != NUM_STEPS || many->num_steps != NUM_STEPS)
        fail_msg("%s: %lld steps of %d", layout_words(l), (long long)many->num_steps, NUM_STEPS);
    for (int i = 0; i < NUM_STEPS; i++) {
        const StepMetrics *x = &one->steps[i], *y = &many->steps[i];
        char step[32];
        snprintf(step, sizeof(step), " of step %d", i + 1);
        check(fabs(y->loss - x->loss) / x->loss, "loss", step, &w->loss, l);
        check(fabs(y->grad_norm - x->grad_norm) / x->grad_norm, "norm", step, &w->norm, l);
    }
}

/* Softmax doesn't see a bias of all keys alike: its gradient is rounding alone, which Adam makes
 * steps of. Their moments are compared, and what they do to everything else. */
static bool is_key_bias(const char *name)
{
    return strstr(name, "k_proj.bias") != NULL || strstr(name, "c_attn.bias") != NULL;
}

static void check_state(struct sweep_worst *w, const struct layout *l, const struct record *one,
                        const struct record *many)
{
    struct whole_distance d = whole_compare(&one->grads, &many->grads, NULL);
    check(d.l2, "gradient of ", d.l2_name, &w->grads_l2, l);
    check(d.max, "elements of the gradient of ", d.max_name, &w->grads_max, l);
    d = whole_compare(&one->weights, &many->weights, one->moments ? is_key_bias : NULL);
    check(d.l2, "weights of ", d.l2_name, &w->weights, l);
    if (one->moments) {
        d = whole_compare(&one->exp_avg, &many->exp_avg, NULL);
        check(d.l2, "first moment of ", d.l2_name, &w->exp_avg, l);
        d = whole_compare(&one->exp_avg_sq, &many->exp_avg_sq, NULL);
        check(d.l2, "second moment of ", d.l2_name, &w->exp_avg_sq, l);
    }
}

void sweep_check(struct sweep *s, const struct layout *l)
{
    struct run *one = one_rank(s, l), many;
    struct gang_spec spec = layout_spec(l, sweep_files(s, l));
    run_well(&many, &spec, NULL, layout_words(l));
    check_curves(&s->worst, l, &one->gang, &many.gang);
    check_state(&s->worst, l, &one->record, &many.record);
    run_free(&many);
}
