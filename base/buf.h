/* A growing run of bytes, with text helpers. Zero-initialised = empty. Always one NUL behind the
 * content once anything was added, so data can be printed as a string. Growth that fails aborts:
 * callers bound sizes that come from outside before they append. */
#ifndef TANDEM_BASE_BUF_H
#define TANDEM_BASE_BUF_H

#include <stddef.h>

struct buf {
    char *data; /* owned */
    size_t len;
    size_t cap;
};

void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for len more bytes and returns where they go; len is not changed. */
char *buf_reserve(struct buf *b, size_t len);
/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);
void buf_clear(struct buf *b);
void buf_free(struct buf *b);
/* The content as a string that the caller frees; the buffer is empty afterwards. Never NULL. */
char *buf_take(struct buf *b);

#endif
