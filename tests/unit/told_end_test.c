/* No end of a test program is silent: a crash, a failed assertion, an exit on another thread than
 * the test's own are told, in plain programs and under sanitizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

static const char *how;

/* ---- the program that ends --------------------------------------------------------------------
 */

static void *end(void *arg)
{
    (void)arg;
    volatile char *hole = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (strcmp(how, "SIGSEGV") == 0)
        *hole = 1;
    if (strcmp(how, "SIGBUS") == 0)
        raise(SIGBUS);
    if (strcmp(how, "SIGILL") == 0)
        raise(SIGILL);
    if (strcmp(how, "SIGFPE") == 0)
        raise(SIGFPE);
    if (strcmp(how, "assertion") == 0)
        assert_int_equal(1, 2);
    if (strcmp(how, "exit") == 0)
        exit(0);
    return NULL;
}

static void a_thread_ends_it(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end, NULL), 0);
    pthread_join(thread, NULL);
}

/* ---- what is seen of it -----------------------------------------------------------------------
 */

static int run(const char *way, char *text, size_t size)
{
    snprintf(text, size, "exec %s/told_end_test %s 2>&1", TANDEM_BIN_DIR, way);
    FILE *f = popen(text, "r");
    assert_non_null(f);
    size_t len = fread(text, 1, size - 1, f);
    text[len] = 0;
    for (char rest[512]; fread(rest, 1, sizeof(rest), f) > 0;)
        continue;
    return pclose(f);
}

static void check_told(const char *way, const char *sanitizer_says)
{
    char text[16384];
    int status = run(way, text, sizeof(text));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("%s: the program passes:\n%s", way, text);
    if (strstr(text, "outside of the test's own thread") == NULL &&
        strstr(text, sanitizer_says) == NULL)
        fail_msg("%s: says nothing of it, status %x:\n%s", way, (unsigned)status, text);
}

static void a_signal_on_another_thread_is_told(void **state)
{
    (void)state;
    check_told("SIGSEGV", "Sanitizer: SEGV on unknown address");
    check_told("SIGBUS", "Sanitizer: BUS on unknown address");
    check_told("SIGILL", "Sanitizer: ILL on unknown address");
    check_told("SIGFPE", "Sanitizer: FPE on unknown address");
}

static void an_assertion_on_another_thread_is_told(void **state)
{
    (void)state;
    check_told("assertion", "outside of the test's own thread");
}

static void an_exit_on_another_thread_is_no_success(void **state)
{
    (void)state;
    check_told("exit", "outside of the test's own thread");
}

/* told_end_test WAY: ends that way. */
int main(int argc, char **argv)
{
    if (argc > 1) {
        how = argv[1];
        const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_ends_it)};
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_on_another_thread_is_told),
        cmocka_unit_test(an_assertion_on_another_thread_is_told),
        cmocka_unit_test(an_exit_on_another_thread_is_no_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
