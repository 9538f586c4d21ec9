#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"

static void __attribute__((format(printf, 2, 0)))
format_text(char *text, const char *fmt, va_list ap)
{
    int n = vsnprintf(text, ERROR_TEXT_MAX, fmt, ap);
    printable_sentence(text, n >= ERROR_TEXT_MAX);
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
    if (!err) {
        return -1;
    }
    err->code = code;
    va_list ap;
    va_start(ap, fmt);
    format_text(err->text, fmt, ap);
    va_end(ap);
    return -1;
}

static enum error_code code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ENOTDIR:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return ERR_RESOURCE_EXHAUSTED;
    case ETIMEDOUT:
        return ERR_DEADLINE_EXCEEDED;
    case EINVAL:
    case ELOOP:
    case EISDIR:
    case ENAMETOOLONG:
        return ERR_INVALID_ARGUMENT;
    default:
        return ERR_UNAVAILABLE;
    }
}

int error_errno(struct error *err, int errnum, const char *fmt, ...)
{
    if (!err) {
        return -1;
    }
    err->code = code_of_errno(errnum);
    va_list ap;
    va_start(ap, fmt);
    format_text(err->text, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->text);
    snprintf(err->text + n, ERROR_TEXT_MAX - n, ": %s", strerror(errnum));
    return -1;
}

int error_wrap(struct error *err, const char *fmt, ...)
{
    if (!err) {
        return -1;
    }
    char inner[ERROR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    va_list ap;
    va_start(ap, fmt);
    format_text(err->text, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->text);
    int more = snprintf(err->text + n, ERROR_TEXT_MAX - n, ": %s", inner);
    printable_sentence(err->text, more >= (int)(ERROR_TEXT_MAX - n));
    return -1;
}

const char *error_code_name(enum error_code code)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "UNKNOWN";
}

void error_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, cond);
    abort();
}
