/* What takes much of the owner thread rests afterwards: by what it had of the processor, not by the
 * clock, which goes on while the thread stands still. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/controller_private.h"

static int64_t now_ms, used_ms;

static int64_t mono_ms(void *ctx)
{
    (void)ctx;
    return now_ms;
}

static int64_t busy_ms(void *ctx)
{
    (void)ctx;
    return used_ms;
}

static struct controller a_controller(void)
{
    now_ms = 1000000;
    used_ms = 5000;
    return (struct controller){.options.world = {.mono_ms = mono_ms, .busy_ms = busy_ms}};
}

static void explain(struct controller *c, int64_t for_ms, int64_t of_processor_ms)
{
    assert_true(controller_may_explain(c));
    now_ms += for_ms;
    used_ms += of_processor_ms;
    controller_explained(c);
}

/* On a busy machine, or one that is stopped for a moment. */
static void standing_still_costs_no_explanation(void **state)
{
    (void)state;
    struct controller c = a_controller();
    explain(&c, 60000, 2);
    assert_true(controller_may_explain(&c));
}

/* A quarter of the time, a second ahead. */
static void explanations_leave_most_of_the_time_to_others(void **state)
{
    (void)state;
    struct controller c = a_controller();
    explain(&c, 200, 200);
    explain(&c, 200, 200);
    assert_false(controller_may_explain(&c));
    now_ms += 199;
    assert_false(controller_may_explain(&c));
    now_ms += 1;
    assert_true(controller_may_explain(&c));
}

static void a_short_pass_needs_no_rest(void **state)
{
    (void)state;
    assert_int_equal(controller_rest_until(5, 1000), 0);
    assert_int_equal(controller_rest_until(6, 1000), 1018);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(standing_still_costs_no_explanation),
        cmocka_unit_test(explanations_leave_most_of_the_time_to_others),
        cmocka_unit_test(a_short_pass_needs_no_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
