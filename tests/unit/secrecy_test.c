/* Which variables of tandemd's environment its children get. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/secrecy.h"

extern char **environ;

static void only_what_a_process_of_ours_can_need_is_handed_on(void **state)
{
    (void)state;
    static const char *const yes[] = {"PATH=/bin",       "LANG=C",
                                      "LC_ALL=C",        "TZ=UTC",
                                      "LD_PRELOAD=x.so", "TANDEM_LOG=debug",
                                      "OMP_NUM_THREADS", "NCCL_DEBUG=INFO",
                                      "TSAN_OPTIONS=x",  "CUDA_VISIBLE_DEVICES=0"};
    static const char *const no[] = {"SECRET_X=1",
                                     "AWS_SECRET_ACCESS_KEY=1",
                                     "GITHUB_TOKEN=1",
                                     "PATHS=1",
                                     "PAT=1",
                                     "MY_PATH=/bin",
                                     "",
                                     "=x",
                                     "path=1",
                                     "TANDEM_TOKEN_FILE=/x",
                                     "TANDEM_TOKEN=1",
                                     "TANDEM_SERVER=x"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        assert_true(secrecy_passes(yes[i]));
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        assert_false(secrecy_passes(no[i]));
    }
}

static void what_the_config_names_stays(void **state)
{
    (void)state;
    char *own[] = {(char[]){"SECRET_X=1"}, (char[]){"PATH=/bin"}, (char[]){"SECRET_Y=2"},
                   (char[]){"SECRET_YY=3"}, NULL};
    char *names[] = {(char[]){"SECRET_Y"}, (char[]){"NOT_THERE"}};
    char **before = environ;
    environ = own;
    secrecy_cut_environment(names, 2);
    assert_string_equal(own[0], "PATH=/bin");
    assert_string_equal(own[1], "SECRET_Y=2");
    assert_null(own[2]);
    secrecy_cut_environment(NULL, 0);
    assert_null(own[1]);
    environ = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_a_process_of_ours_can_need_is_handed_on),
        cmocka_unit_test(what_the_config_names_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
