/* Just as much JSON as a safetensors header needs: punctuation, strings, whole numbers. A cursor
 * over borrowed bytes that never reads past their end, never recurses, and says at which byte of
 * the header it stopped. */
#ifndef TANDEM_RUNTIME_CKPT_SAFETENSORS_JSON_H
#define TANDEM_RUNTIME_CKPT_SAFETENSORS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct st_json {
    const char *name; /* of the file, for messages */
    const char *begin, *p, *end;
    struct error *err;
};

/* Fails with where and what. Returns -1. */
int st_json_fail(const struct st_json *j, const char *what);
/* Skips white space; the next character is c: takes it and says true. */
bool st_json_take(struct st_json *j, char c);
/* The same, but anything else is an error. */
int st_json_expect(struct st_json *j, char c);
/* A string, decoded, into out (cleared first; NUL-terminated). Valid UTF-8, no NUL inside; at most
 * max_bytes. */
int st_json_string(struct st_json *j, size_t max_bytes, struct buf *out);
/* A whole number 0 .. 2^64 - 1: no sign, fraction, exponent or leading zero. */
int st_json_u64(struct st_json *j, uint64_t *out);
/* Only white space is left. */
int st_json_finish(struct st_json *j);

#endif
