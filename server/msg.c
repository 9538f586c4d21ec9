#include "server/msg.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void *msg_new(const ProtobufCMessageDescriptor *descriptor)
{
    void *m = calloc(1, descriptor->sizeof_message);
    ASSERT(m);
    protobuf_c_message_init(descriptor, m);
    return m;
}

void msg_text(char **field, const char *text)
{
    if (text && *text) {
        *field = strdup(text);
        ASSERT(*field);
    }
}

void msg_printf(char **field, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(field, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
}

void msg_push(void *list, size_t *num, void *item)
{
    void **old, **grown;
    memcpy(&old, list, sizeof old);
    grown = realloc(old, (*num + 1) * sizeof *grown);
    ASSERT(grown);
    grown[(*num)++] = item;
    memcpy(list, &grown, sizeof grown);
}

void msg_free(void *message)
{
    if (message) {
        protobuf_c_message_free_unpacked(message, NULL);
    }
}
