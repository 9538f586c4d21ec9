#include "runtime/comm/comm.h"

#include <stdarg.h>
#include <stdio.h>

void comm_say(struct comm *c, const char *fmt, ...)
{
    if (!c) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->what, sizeof c->what, fmt, args);
    va_end(args);
}
