/* Every layout computes what one rank does. Four small models, one of each family, over data,
 * tensor, zero_stage, shard_size, sequence parallel, micro-batches, buckets, optimizer, clipping
 * and packed documents.
 *
 * By default a set of layouts in which all three values that fit together occur together, in bf16
 * every third of them; TANDEM_SAMPLE=1 (sanitizers) a few drawn from TANDEM_SEED, TANDEM_FULL=1
 * thousands. TANDEM_LAYOUT=N is the one with that number, as a failure prints it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cover.h"
#include "sweep.h"
#include "tests/effort.h"

#define DRAWN_LAYOUTS 5000
#define SAMPLED_LAYOUTS 4
#define DEFAULT_SEED 1

static void run_all(const struct layout *layouts, int num, const char *precision)
{
    struct sweep *s;
    int64_t begin_ms = clock_mono_ms();
    sweep_open(&s, precision);
    for (int i = 0; i < num; i++) {
        if (effort_is_set("TANDEM_VERBOSE"))
            print_message("%s\n", layout_words(&layouts[i]));
        sweep_check(s, &layouts[i]);
        if ((i + 1) % 500 == 0)
            print_message("%d of %d\n", i + 1, num);
    }
    print_message("%d layouts in %s in %.1f s; ", num, precision,
                  (double)(clock_mono_ms() - begin_ms) / 1e3);
    compare_print(sweep_worst(s));
    sweep_close(s);
}

/* Counted without the cover's own list: over all layouts that there are. Nothing of the program
 * runs here: not for sanitizers. */
static void the_cover_has_every_three_values_that_fit_together(void **state)
{
    (void)state;
    if (effort(0, 0, 1))
        skip();
    struct cover c;
    int64_t num_all = 1;
    int num = 0;
    for (int f = 0; f < NUM_FACTORS; f++)
        num_all *= layout_num_values(f);
    struct layout *all = malloc((size_t)num_all * sizeof(*all));
    assert_non_null(all);
    for (int64_t i = 0; i < num_all; i++) {
        all[num] = layout_from_number(i);
        assert_int_equal(layout_number(&all[num]), i);
        num += layout_is_feasible(&all[num]);
    }
    cover_build(&c);
    assert_int_equal(cover_count(c.layouts, c.num), cover_count(all, num));
    print_message("%d of %d layouts have all %lld triples\n", c.num, num,
                  (long long)cover_count(all, num));
    cover_free(&c);
    free(all);
}

static void run_drawn(const char *precision)
{
    uint64_t seed = (uint64_t)effort_number("TANDEM_SEED", DEFAULT_SEED);
    int num = (int)effort_number("TANDEM_CASES", effort(DRAWN_LAYOUTS, 0, SAMPLED_LAYOUTS));
    uint64_t first = strcmp(precision, "bf16") == 0 ? (uint64_t)num : 0;
    struct layout *layouts = calloc((size_t)num, sizeof(*layouts));
    assert_non_null(layouts);
    print_message("TANDEM_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < num; i++)
        layouts[i] = layout_draw(seed * 1000003 + first + (uint64_t)i);
    run_all(layouts, num, precision);
    free(layouts);
}

static void run_cover(const char *precision)
{
    struct cover c;
    cover_build(&c);
    bool third = strcmp(precision, "bf16") == 0;
    int num = third ? c.num / 3 : c.num;
    for (int i = 0; i < num; i++)
        c.layouts[i] = c.layouts[c.num * (2 * i + 1) / (2 * num)];
    c.num = num;
    run_all(c.layouts, c.num, precision);
    cover_free(&c);
}

static void run_layouts(const char *precision)
{
    int64_t number = effort_number("TANDEM_LAYOUT", -1);
    if (number >= 0) {
        struct layout l = layout_from_number(number);
        assert_true(layout_is_feasible(&l));
        run_all(&l, 1, precision);
    } else if (effort(1, 0, 1)) {
        run_drawn(precision);
    } else {
        run_cover(precision);
    }
}

/* No layout changes what a step computes: loss, norm, each gradient, each weight and moment, in
 * fp64 to the rounding of sums. SGD shows a wrong factor, which Adam hides. */
static void every_layout_computes_what_one_rank_does(void **state)
{
    (void)state;
    run_layouts("fp64");
}

/* The same in bf16 with fp32 masters: as near as rounding lets it be, and no sum that is missing or
 * there twice. */
static void every_layout_computes_in_bf16_what_one_rank_does(void **state)
{
    (void)state;
    run_layouts("bf16");
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cover_has_every_three_values_that_fit_together),
        cmocka_unit_test(every_layout_computes_what_one_rank_does),
        cmocka_unit_test(every_layout_computes_in_bf16_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
