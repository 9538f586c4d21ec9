/* How much a sweep should try: TANDEM_FULL=1 the long ones, TANDEM_SAMPLE=1 less than usual (set
 * under sanitizers); unset, empty and 0 mean no. */
#ifndef TANDEM_TESTS_EFFORT_H
#define TANDEM_TESTS_EFFORT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline int effort_is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

static inline int effort(int full, int usual, int sample)
{
    return effort_is_set("TANDEM_FULL") ? full : effort_is_set("TANDEM_SAMPLE") ? sample : usual;
}

/* The number that a variable (a seed, how many cases) says; fallback where it doesn't. */
static inline int64_t effort_number(const char *name, int64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : fallback;
}

#endif
