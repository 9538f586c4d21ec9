/* Sets of devices: sorted, comparable, shared safely. */
#include "plan/device_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_set_is_sorted_and_knows_its_members(void **state)
{
    (void)state;
    int32_t devices[] = {7, 3, 100, 0};
    struct device_set *s = device_set_new(devices, 4);
    assert_int_equal(s->num, 4);
    assert_int_equal(s->device[0], 0);
    assert_int_equal(s->device[3], 100);
    assert_true(device_set_has(s, 7));
    assert_false(device_set_has(s, 8));
    device_set_free(s);
}

/* NULL is the empty set everywhere. */
static void the_empty_set_is_null(void **state)
{
    (void)state;
    int32_t device = 1;
    assert_null(device_set_new(&device, 0));
    assert_null(device_set_copy(NULL));
    assert_int_equal(device_set_num(NULL), 0);
    assert_false(device_set_has(NULL, 0));
    assert_true(device_set_equal(NULL, NULL));
    struct device_set *one = device_set_new(&device, 1);
    assert_false(device_set_equal(one, NULL));
    device_set_free(one);
    device_set_free(NULL);
}

static void sets_are_equal_by_their_members(void **state)
{
    (void)state;
    int32_t a[] = {1, 2, 5}, b[] = {5, 2, 1}, c[] = {1, 2, 6};
    struct device_set *x = device_set_new(a, 3), *y = device_set_new(b, 3);
    struct device_set *z = device_set_new(c, 3), *copy = device_set_copy(x);
    assert_true(device_set_equal(x, y));
    assert_true(device_set_equal(x, copy));
    assert_false(device_set_equal(x, z));
    device_set_free(x);
    device_set_free(y);
    device_set_free(z);
    assert_int_equal(copy->device[2], 5);
    device_set_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_sorted_and_knows_its_members),
        cmocka_unit_test(the_empty_set_is_null),
        cmocka_unit_test(sets_are_equal_by_their_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
