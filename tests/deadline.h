/* What a test waits for must come, or it says what didn't. A wait that looks again and again ends
 * with a failed test; a call that blocks by itself (a join, a read) with the end of the program,
 * since there is no other way out of it. For the main thread; after cmocka.h. */
#ifndef TANDEM_TESTS_DEADLINE_H
#define TANDEM_TESTS_DEADLINE_H

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Far more than any wait takes on a busy machine, far less than ctest gives a program. */
#define DEADLINE_S 60

/* WAIT_UNTIL(condition, "a report on disk"): looks each millisecond; the words may hold values. */
#define WAIT_UNTIL(condition, ...)                                                                 \
    do {                                                                                           \
        int64_t wait_until_ms_ = clock_mono_ms() + DEADLINE_S * 1000;                              \
        while (!(condition)) {                                                                     \
            if (clock_mono_ms() >= wait_until_ms_) {                                               \
                fail_msg("a minute has passed without " __VA_ARGS__);                              \
            }                                                                                      \
            clock_sleep_ms(1);                                                                     \
        }                                                                                          \
    } while (0)

static char deadline_words[256];

static inline void deadline_over(int sig)
{
    (void)sig;
    ssize_t n = write(STDERR_FILENO, deadline_words, strlen(deadline_words));
    (void)n;
    abort();
}

/* From here to deadline_end: what follows may block, and waits for this. A child that is forked
 * meanwhile isn't meant. */
__attribute__((format(printf, 2, 3))) static inline void deadline_begin(int seconds,
                                                                        const char *fmt, ...)
{
    va_list ap;
    int n =
        snprintf(deadline_words, sizeof deadline_words, "%d seconds have passed without ", seconds);
    va_start(ap, fmt);
    vsnprintf(deadline_words + n, sizeof deadline_words - (size_t)n - 1, fmt, ap);
    va_end(ap);
    strcat(deadline_words, "\n");
    signal(SIGALRM, deadline_over);
    alarm((unsigned)seconds);
}

static inline void deadline_end(void)
{
    alarm(0);
}

#endif
