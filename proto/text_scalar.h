/* One value of a field from a word, and what is said when it doesn't fit. Private to text_*. */
#ifndef TANDEM_PROTO_TEXT_SCALAR_H
#define TANDEM_PROTO_TEXT_SCALAR_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

/* text may hold any bytes; quoted: it stood in quotes. Fills the place that field_add gave, or
 * fails with text like: wants a whole number, got "abc". Not for messages. */
int text_scalar_read(const ProtobufCFieldDescriptor *field, void *at, const char *text, size_t len,
                     bool quoted, struct error *err);

/* A plain null, ~ or nothing: the field is absent. */
bool text_scalar_is_null(const char *text, size_t len, bool quoted);

/* text for a message: in quotes, cut, unprintable bytes as '?'. */
#define TEXT_QUOTE_MAX 72
const char *text_scalar_quote(char out[TEXT_QUOTE_MAX], const char *text, size_t len);

void text_scalar_base64(struct buf *out, const ProtobufCBinaryData *bytes);

/* Valid UTF-8 without control characters but tab and newline, at most max_len bytes; else what is
 * wrong, as the end of a sentence; NULL: fine. */
const char *text_scalar_fault(const char *text, size_t len, size_t max_len);

#endif
