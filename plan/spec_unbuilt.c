#include "plan/spec_unbuilt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

void spec_unbuilt_add(struct spec_unbuilt *u, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    ASSERT(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    char **grown = realloc(u->lines, (u->num + 1) * sizeof *grown);
    ASSERT(grown);
    u->lines = grown;
    u->lines[u->num++] = text;
}

void spec_unbuilt_free(struct spec_unbuilt *u)
{
    for (size_t i = 0; i < u->num; i++) {
        free(u->lines[i]);
    }
    free(u->lines);
    *u = (struct spec_unbuilt){0};
}
