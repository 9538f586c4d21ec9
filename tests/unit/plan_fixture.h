/* The beginning of a test of plans: each test function has a case of its own, `c`. Included once,
 * by the test's file. */
#ifndef TANDEM_TESTS_UNIT_PLAN_FIXTURE_H
#define TANDEM_TESTS_UNIT_PLAN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_case.h"

static struct plan_case *c;

static int setup(void **state)
{
    (void)state;
    c = plan_case_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_case_free(c);
    return 0;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
