/* OpenBLAS has to use the kernels of this processor, also where it doesn't know it. */
#include "kernels/cpu/blas_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char **arguments;

/* main() has called blas_core_ensure: the program was started anew where that was needed, and what
 * runs now wants nothing more. A variable that the user has set stays. */
static void after_the_start_no_other_kernels_are_wanted(void **state)
{
    (void)state;
    const char *set = getenv("OPENBLAS_CORETYPE");
    if (!set || strcmp(set, "SkylakeX") == 0 || strcmp(set, "Haswell") == 0) {
        assert_null(blas_core_wanted());
    }
    blas_core_ensure(arguments);
    assert_ptr_equal(getenv("OPENBLAS_CORETYPE"), set);
}

int main(int argc, char **argv)
{
    (void)argc;
    blas_core_ensure(argv);
    arguments = argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_start_no_other_kernels_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
