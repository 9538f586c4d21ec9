#include "runtime/ckpt/safetensors_json.h"

#include <string.h>

int st_json_fail(const struct st_json *j, const char *what)
{
    return error_set(j->err, ERR_INVALID_ARGUMENT, "%s: header: byte %zu: %s", j->name,
                     (size_t)(j->p - j->begin), what);
}

static void skip_space(struct st_json *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r')) {
        j->p++;
    }
}

bool st_json_take(struct st_json *j, char c)
{
    skip_space(j);
    if (j->p == j->end || *j->p != c) {
        return false;
    }
    j->p++;
    return true;
}

int st_json_expect(struct st_json *j, char c)
{
    if (st_json_take(j, c)) {
        return 0;
    }
    char what[] = "expected '?'";
    what[10] = c;
    return st_json_fail(j, what);
}

int st_json_finish(struct st_json *j)
{
    skip_space(j);
    return j->p == j->end ? 0 : st_json_fail(j, "more behind the end of the object");
}

int st_json_u64(struct st_json *j, uint64_t *out)
{
    skip_space(j);
    const char *start = j->p;
    uint64_t v = 0;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9') {
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*j->p - '0'), &v)) {
            return st_json_fail(j, "number above 2^64");
        }
        j->p++;
    }
    if (j->p == start || (*start == '0' && j->p - start > 1)) {
        return st_json_fail(j, "expected a whole number");
    }
    if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E')) {
        return st_json_fail(j, "expected a whole number");
    }
    *out = v;
    return 0;
}

static int take_hex4(struct st_json *j, uint32_t *out)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++, j->p++) {
        if (j->p == j->end) {
            return st_json_fail(j, "unfinished \\u escape");
        }
        char c = *j->p;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return st_json_fail(j, "bad \\u escape");
        }
        v = v << 4 | (uint32_t)digit;
    }
    *out = v;
    return 0;
}

static void put_utf8(struct buf *out, uint32_t c)
{
    if (c < 0x80) {
        buf_putc(out, (char)c);
        return;
    }
    int tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[4] = {0, 0xC0, 0xE0, 0xF0};
    buf_putc(out, (char)(lead[tail] | c >> (6 * tail)));
    while (tail-- > 0) {
        buf_putc(out, (char)(0x80 | ((c >> (6 * tail)) & 0x3F)));
    }
}

/* Behind the backslash. */
static int take_escape(struct st_json *j, struct buf *out)
{
    if (j->p == j->end) {
        return st_json_fail(j, "unfinished string");
    }
    char c = *j->p++;
    if (c == '"' || c == '\\' || c == '/') {
        buf_putc(out, c);
        return 0;
    }
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        buf_putc(out, meant[letter - letters]);
        return 0;
    }
    if (c != 'u') {
        return st_json_fail(j, "no such escape");
    }
    uint32_t code, low;
    if (take_hex4(j, &code) != 0) {
        return -1;
    }
    if (code >= 0xD800 && code < 0xDC00) {
        if (j->end - j->p < 2 || j->p[0] != '\\' || j->p[1] != 'u') {
            return st_json_fail(j, "half a surrogate pair");
        }
        j->p += 2;
        if (take_hex4(j, &low) != 0) {
            return -1;
        }
        if (low < 0xDC00 || low > 0xDFFF) {
            return st_json_fail(j, "half a surrogate pair");
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return st_json_fail(j, "half a surrogate pair");
    }
    if (code == 0) {
        return st_json_fail(j, "NUL in a string");
    }
    put_utf8(out, code);
    return 0;
}

/* One character of two bytes or more, checked: no overlong forms, no surrogates, at most
 * U+10FFFF. */
static int take_utf8(struct st_json *j, struct buf *out)
{
    unsigned char lead = (unsigned char)*j->p;
    int tail = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || j->end - j->p <= tail) {
        return st_json_fail(j, "not valid UTF-8");
    }
    uint32_t code = lead & (0x3Fu >> tail);
    for (int i = 1; i <= tail; i++) {
        unsigned char c = (unsigned char)j->p[i];
        if ((c & 0xC0) != 0x80) {
            return st_json_fail(j, "not valid UTF-8");
        }
        code = code << 6 | (c & 0x3Fu);
    }
    static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};
    if (code < least[tail] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        return st_json_fail(j, "not valid UTF-8");
    }
    buf_append(out, j->p, (size_t)tail + 1);
    j->p += tail + 1;
    return 0;
}

int st_json_string(struct st_json *j, size_t max_bytes, struct buf *out)
{
    buf_clear(out);
    if (st_json_expect(j, '"') != 0) {
        return -1;
    }
    while (j->p < j->end && *j->p != '"') {
        unsigned char c = (unsigned char)*j->p;
        int rc = 0;
        if (c < 0x20 || c == 0x7F) {
            rc = st_json_fail(j, "control character in a string");
        } else if (c == '\\') {
            j->p++;
            rc = take_escape(j, out);
        } else if (c >= 0x80) {
            rc = take_utf8(j, out);
        } else {
            buf_putc(out, *j->p++);
        }
        if (rc != 0) {
            return rc;
        }
        if (out->len > max_bytes) {
            return st_json_fail(j, "string is too long");
        }
    }
    if (j->p == j->end) {
        return st_json_fail(j, "unfinished string");
    }
    j->p++;
    buf_append(out, "", 0);
    return 0;
}
