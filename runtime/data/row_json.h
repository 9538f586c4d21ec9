/* One line of JSON, read once from front to back: what rows of token arrays need and no more.
 *
 * Bytes come in chunks of any size, so a line may be longer than memory; nothing of it is kept but
 * what the caller asked for. A newline ends the line wherever it stands. Numbers of an array are
 * whole and written plainly; values that are skipped are checked as JSON, nested to a bound. */
#ifndef TANDEM_RUNTIME_DATA_ROW_JSON_H
#define TANDEM_RUNTIME_DATA_ROW_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define ROW_JSON_DEPTH_MAX 32
/* Room for a key; a longer one is cut, and is none that is known. */
#define ROW_JSON_KEY_MAX 64

struct row_json {
    const char *at, *end; /* bytes that are there */
    /* Gives the bytes that follow: 1 = some, 0 = the file ends, -1 = err says why there are none.
     * NULL: at .. end is all. */
    int (*more)(void *ctx, const char **at, const char **end, struct error *err);
    void *ctx;
    bool ended, failed; /* more has said 0, -1 */
    const char *where;  /* what is being read, for messages */
};

/* Next byte, without taking it; -1 at the end of the line. */
int row_json_peek(struct row_json *j, struct error *err);
/* The same behind white space. */
int row_json_next(struct row_json *j, struct error *err);
/* Takes byte c behind white space; what = how to name it. */
int row_json_take(struct row_json *j, char c, const char *what, struct error *err);
/* A string, unescaped; characters that are no ASCII become '?'. */
int row_json_string(struct row_json *j, char out[ROW_JSON_KEY_MAX], struct error *err);
/* Any value. */
int row_json_skip(struct row_json *j, struct error *err);
/* A null? Taken if so; on another value *is says false and nothing is taken. */
int row_json_null(struct row_json *j, bool *is, struct error *err);
/* To behind the newline. Only white space may be left of the line. */
int row_json_end_line(struct row_json *j, struct error *err);
/* err says what is wrong, unless reading itself failed and it says that already. Always -1. */
int row_json_fail(const struct row_json *j, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* For what else reads of the line: byte c (-1 = the line's end) in words; that it stands where
 * `wanted` should. */
const char *row_json_shown(int c, char out[32]);
int row_json_unexpected(const struct row_json *j, int c, const char *wanted, struct error *err);

/* A growing array of numbers. Zero = empty; freed with free(at). */
struct row_ints {
    int32_t *at; /* owned */
    int64_t num, cap;
};
/* Values 0 .. limit - 1 and `also` are allowed; limit <= 2^31. */
struct row_ints_rule {
    int64_t max;          /* numbers */
    const char *too_many; /* why no more, "the model's seq_len is 48"; for messages */
    int64_t limit;
    int32_t also;
    const char *wants; /* what is allowed, in words: "an id below vocab_size" */
};
/* A list, in row_ints.c. */
int row_json_ints(struct row_json *j, const struct row_ints_rule *rule, struct row_ints *out,
                  struct error *err);

#endif
