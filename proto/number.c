#include "proto/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A decimal number taken apart; all of it lies inside the text. */
struct decimal {
    bool negative;
    const char *whole, *fraction; /* digits */
    size_t num_whole, num_fraction;
    long exponent; /* clamped to +-9999 */
};

#define EXPONENT_MAX 9999

static size_t count_digits(const char *at, const char *end)
{
    const char *p = at;
    while (p < end && *p >= '0' && *p <= '9') {
        p++;
    }
    return (size_t)(p - at);
}

static bool parse_exponent(const char *p, const char *end, long *out)
{
    long sign = 1;
    if (p < end && (*p == '-' || *p == '+')) {
        sign = *p == '-' ? -1 : 1;
        p++;
    }
    size_t num = count_digits(p, end);
    if (num == 0 || p + num != end) {
        return false;
    }
    long value = 0;
    for (; p < end; p++) {
        value = value * 10 + (*p - '0');
        if (value > EXPONENT_MAX) {
            value = EXPONENT_MAX;
        }
    }
    *out = sign * value;
    return true;
}

static bool decimal_parse(const char *text, size_t len, struct decimal *d)
{
    const char *p = text, *end = text + len;
    memset(d, 0, sizeof *d);
    if (p < end && (*p == '-' || *p == '+')) {
        d->negative = *p == '-';
        p++;
    }
    d->whole = p;
    d->num_whole = count_digits(p, end);
    p += d->num_whole;
    d->fraction = p;
    if (p < end && *p == '.') {
        d->fraction = ++p;
        d->num_fraction = count_digits(p, end);
        p += d->num_fraction;
    }
    if (d->num_whole + d->num_fraction == 0 || (d->num_whole > 1 && d->whole[0] == '0')) {
        return false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        return parse_exponent(p + 1, end, &d->exponent);
    }
    return p == end;
}

static char digit_at(const struct decimal *d, size_t i)
{
    return i < d->num_whole ? d->whole[i] : d->fraction[i - d->num_whole];
}

bool number_whole(const char *text, size_t len, bool *negative, uint64_t *size, bool *too_large)
{
    struct decimal d;
    *too_large = false;
    if (!decimal_parse(text, len, &d)) {
        return false;
    }
    /* The value is digits[0..n) x 10^shift. Without the zeros at its end it is whole if shift is
     * not negative. */
    size_t n = d.num_whole + d.num_fraction;
    long shift = d.exponent - (long)d.num_fraction;
    while (n > 0 && digit_at(&d, n - 1) == '0') {
        n--;
        shift++;
    }
    *negative = d.negative;
    *size = 0;
    if (n == 0) {
        return true;
    }
    if (shift < 0) {
        return false;
    }
    for (size_t i = 0; i < n + (size_t)shift; i++) {
        unsigned digit = i < n ? (unsigned)(digit_at(&d, i) - '0') : 0;
        if (*size > (UINT64_MAX - digit) / 10) {
            *too_large = true;
            return false;
        }
        *size = *size * 10 + digit;
    }
    return true;
}

bool number_i64(const char *text, size_t len, int64_t *out)
{
    bool negative, too_large;
    uint64_t size;
    if (!number_whole(text, len, &negative, &size, &too_large) ||
        size > (uint64_t)INT64_MAX + negative) {
        return false;
    }
    *out = negative ? (int64_t)(0 - size) : (int64_t)size;
    return true;
}

bool number_double(const char *text, size_t len, double *out, bool *too_large)
{
    struct decimal d;
    *too_large = false;
    if (!decimal_parse(text, len, &d)) {
        return false;
    }
    char stack[64];
    char *copy = len < sizeof stack ? stack : malloc(len + 1);
    if (!copy) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = 0;
    *out = strtod(copy, NULL);
    if (copy != stack) {
        free(copy);
    }
    *too_large = !isfinite(*out);
    return !*too_large;
}

void number_format(char out[NUMBER_TEXT_MAX], double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, NUMBER_TEXT_MAX, "%.*g", digits, value);
        if (strtod(out, NULL) == value) {
            break;
        }
    }
    /* YAML 1.1 readers take 1e-08 for a word, 1.0e-08 for a number. */
    char *e = strchr(out, 'e');
    if (e && !strchr(out, '.')) {
        memmove(e + 2, e, strlen(e) + 1);
        memcpy(e, ".0", 2);
    }
}
