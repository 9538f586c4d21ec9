#include "sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sweep {
    const char *precision; /* borrowed */
    struct shape_files files[NUM_SHAPES];
    struct run one_rank[NUM_SHAPES][2][2][2]; /* by optimizer, clip, packed */
    struct compare_worst worst;
};

void sweep_open(struct sweep **out, const char *precision)
{
    struct sweep *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->precision = precision;
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

static const struct shape_files *files_of(const struct sweep *s, const struct layout *l)
{
    return &s->files[l->values[FACTOR_SHAPE]];
}

const struct compare_worst *sweep_worst(const struct sweep *s)
{
    return &s->worst;
}

static struct run *one_rank(struct sweep *s, const struct layout *l)
{
    const int *v = l->values;
    struct run *r =
        &s->one_rank[v[FACTOR_SHAPE]][v[FACTOR_OPTIMIZER]][v[FACTOR_CLIP]][v[FACTOR_PACKED]];
    if (r->plan == NULL) {
        struct gang_spec spec = layout_one_rank(l, files_of(s, l));
        spec.precision = s->precision;
        run_well(r, &spec, NULL, "one rank");
    }
    return r;
}

void sweep_check(struct sweep *s, const struct layout *l)
{
    struct run *one = one_rank(s, l), many;
    struct gang_spec spec = layout_spec(l, files_of(s, l));
    spec.precision = s->precision;
    run_well(&many, &spec, NULL, layout_words(l));
    if (strcmp(s->precision, "bf16") == 0)
        compare_rounded(&s->worst, layout_words(l), one, &many);
    else
        compare_runs(&s->worst, layout_words(l), one, &many);
    run_free(&many);
}
