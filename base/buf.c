#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

char *buf_reserve(struct buf *b, size_t len)
{
    ASSERT(len < (size_t)1 << 40);
    if (b->len + len + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < b->len + len + 1) {
            cap *= 2;
        }
        char *data = realloc(b->data, cap);
        ASSERT(data);
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
    char *at = buf_reserve(b, len);
    if (len) {
        memcpy(at, data, len);
    }
    b->len += len;
    b->data[b->len] = 0;
}

void buf_puts(struct buf *b, const char *text)
{
    buf_append(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    char *at = buf_reserve(b, (size_t)n);
    vsnprintf(at, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
    ASSERT(n <= b->len);
    if (n == 0) {
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
    b->data[b->len] = 0;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data) {
        b->data[0] = 0;
    }
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

char *buf_take(struct buf *b)
{
    buf_append(b, "", 0);
    char *data = b->data;
    *b = (struct buf){0};
    return data;
}
