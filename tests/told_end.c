/* An end of a test program that cmocka keeps to itself, told. It is in all programs of test_cmocka.
 *
 * cmocka's assertions and handlers of signals jump back into the test, which only the thread that
 * runs it can do. On any other one they call exit(-1): no message, and "Failed" from ctest. Here
 * such an exit names its thread, shows its stack and becomes an abort. Where a sanitizer is, the
 * signals are its own, whatever cmocka asks for: its report has the address and the stack. */
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FRAMES_MAX 64

/* Settings in the environment go before these. */
#define SIGNALS "handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:handle_abort=1"

/* The sanitizers look for them; in a plain program nobody does. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return SIGNALS;
}

const char *__tsan_default_options(void)
{
    return SIGNALS;
}

/* A sanitizer's, with names and lines; else NULL. */
extern void __sanitizer_print_stack_trace(void) __attribute__((weak));

static void tell_end(int status, void *arg)
{
    (void)arg;
    if (status != -1 && gettid() == getpid())
        return;
    fprintf(stderr,
            "exit(%d) on thread %d of process %d: a signal, or an assertion of cmocka's, outside "
            "of the test's own thread. Its stack:\n",
            status, (int)gettid(), (int)getpid());
    if (__sanitizer_print_stack_trace != NULL) {
        __sanitizer_print_stack_trace();
    } else {
        void *frames[FRAMES_MAX];
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
    }
    abort();
}

__attribute__((constructor)) static void watch_end(void)
{
    /* Its first call loads a library: not from within a signal. */
    void *frame;
    backtrace(&frame, 1);
    if (on_exit(tell_end, NULL) != 0)
        abort();
}
