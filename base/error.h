/* What went wrong outside, as a code and a sentence.
 *
 * A function that can fail for reasons outside the program returns -1 and fills the error that it
 * was given; callers add what they know in front ("read plan x: open: no such file"). A NULL error
 * is allowed. What is our own mistake is an ASSERT, kept in release builds. */
#ifndef TANDEM_BASE_ERROR_H
#define TANDEM_BASE_ERROR_H

#include <stdbool.h>

/* gRPC status numbers, so that an error crosses the wire unchanged. */
enum error_code {
    ERR_OK = 0,
    ERR_CANCELLED = 1,
    ERR_UNKNOWN = 2,
    ERR_INVALID_ARGUMENT = 3,
    ERR_DEADLINE_EXCEEDED = 4,
    ERR_NOT_FOUND = 5,
    ERR_ALREADY_EXISTS = 6,
    ERR_PERMISSION_DENIED = 7,
    ERR_RESOURCE_EXHAUSTED = 8,
    ERR_FAILED_PRECONDITION = 9,
    ERR_ABORTED = 10,
    ERR_OUT_OF_RANGE = 11,
    ERR_UNIMPLEMENTED = 12,
    ERR_INTERNAL = 13,
    ERR_UNAVAILABLE = 14,
    ERR_DATA_LOSS = 15,
    ERR_UNAUTHENTICATED = 16,
};

#define ERROR_TEXT_MAX 1024

struct error {
    enum error_code code;
    char text[ERROR_TEXT_MAX];
};

/* Fills err (if any) and returns -1, so that a caller can `return error_set(...)`. The text
 * is one printable line, whatever names are in it; what is too long is cut at a whole UTF-8
 * character. */
int error_set(struct error *err, enum error_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with ": " and strerror(errnum) behind the text; the code follows from errnum. */
int error_errno(struct error *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "text: " in front of what err says and returns -1. */
int error_wrap(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "INVALID_ARGUMENT" and so on. */
const char *error_code_name(enum error_code code);

__attribute__((noreturn)) void error_assert_failed(const char *cond, const char *file, int line);

#define ASSERT(cond) ((cond) ? (void)0 : error_assert_failed(#cond, __FILE__, __LINE__))

#endif
