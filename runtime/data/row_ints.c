/* Lists of whole numbers in a row: nearly all of a file, so plain numbers go a fast way. */
#include "runtime/data/row_json.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 512
/* A number that is allowed, with what stands around it, is shorter. */
#define NUMBER_ROOM 24

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A plain whole number at p, which has NUMBER_ROOM bytes. NULL if it is none, or a large one. */
static const char *plain_number(const char *p, int64_t *out)
{
    bool negative = *p == '-';
    p += negative;
    if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) {
        return NULL;
    }
    int64_t v = 0;
    const char *end = p + 11;
    for (; is_digit(*p); p++) {
        if (p == end) {
            return NULL;
        }
        v = v * 10 + (*p - '0');
    }
    *out = negative ? -v : v;
    return p;
}

static int grow(struct row_ints *out, struct error *err)
{
    int64_t cap = out->cap ? out->cap * 2 : FIRST_CAP;
    int32_t *at = realloc(out->at, (size_t)cap * sizeof *at);
    if (!at) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for a row");
    }
    out->at = at;
    out->cap = cap;
    return 0;
}

/* The value that is no plain number, as far as it can be shown; cut = not to its end. */
static int not_plain(const struct row_json *j, const struct row_ints_rule *rule, const char *word,
                     bool cut, int64_t i, struct error *err)
{
    const char *digits = word + (*word == '-'), *kind = "";
    const char *dots = cut ? "..." : "";
    if (*digits != '0' && *digits && !digits[strspn(digits, "0123456789")]) {
        return row_json_fail(j, err, "%s[%lld] is %s%s; wants %s", j->where, (long long)i, word,
                             dots, rule->wants);
    }
    if (*word == '"') {
        kind = ", a string";
    } else if (*word == '[' || *word == '{') {
        kind = ", a list or an object";
    } else if (is_digit(*digits) && strpbrk(digits, ".eE")) {
        kind = ", a fraction by its writing";
    }
    return row_json_fail(j, err, "%s[%lld] is %s%s%s; wants a whole number, written plainly (12)",
                         j->where, (long long)i, word, dots, kind);
}

/* One number that isn't plain in what lies in memory: at a chunk's edge, or a wrong one. */
static int slow_number(struct row_json *j, const struct row_ints_rule *rule, int64_t i,
                       int64_t *out, struct error *err)
{
    char word[NUMBER_ROOM + 1] = {0};
    int len = 0, c;
    for (c = row_json_next(j, err); len < NUMBER_ROOM - 4; c = row_json_peek(j, err)) {
        if (c < 0 || c == ',' || c == ']' || c == ' ' || c == '\t' || c == '\r') {
            break;
        }
        word[len++] = c > 0x20 && c < 0x7f ? (char)c : '?';
        j->at++;
    }
    if (len == 0) {
        return row_json_unexpected(j, c, "a number", err);
    }
    bool cut = len == NUMBER_ROOM - 4;
    const char *end = cut ? NULL : plain_number(word, out);
    if (end && *end == 0) {
        return 0;
    }
    if (c < 0 && !cut) {
        return row_json_unexpected(j, c, "the rest of the numbers", err);
    }
    return not_plain(j, rule, word, cut, i, err);
}

static int wrong_value(const struct row_json *j, const struct row_ints_rule *rule, int64_t i,
                       int64_t v, struct error *err)
{
    return row_json_fail(j, err, "%s[%lld] is %lld; wants %s", j->where, (long long)i, (long long)v,
                         rule->wants);
}

static int add(struct row_json *j, const struct row_ints_rule *rule, struct row_ints *out,
               int64_t v, struct error *err)
{
    if ((uint64_t)v >= (uint64_t)rule->limit && v != rule->also) {
        return wrong_value(j, rule, out->num, v, err);
    }
    if (out->num >= rule->max) {
        return row_json_fail(j, err, "%s has more than %lld numbers; %s", j->where,
                             (long long)rule->max, rule->too_many);
    }
    if (out->num == out->cap && grow(out, err) != 0) {
        return -1;
    }
    out->at[out->num++] = (int32_t)v;
    return 0;
}

/* As far as numbers lie plainly in memory, each followed by a comma. */
static int fast_numbers(struct row_json *j, const struct row_ints_rule *rule, struct row_ints *out,
                        struct error *err)
{
    while (j->end - j->at > NUMBER_ROOM) {
        int64_t v;
        const char *p = plain_number(j->at, &v);
        if (!p || *p != ',') {
            return 0;
        }
        if (add(j, rule, out, v, err) != 0) {
            return -1;
        }
        p++;
        j->at = p + (*p == ' ');
    }
    return 0;
}

int row_json_ints(struct row_json *j, const struct row_ints_rule *rule, struct row_ints *out,
                  struct error *err)
{
    out->num = 0;
    int c = row_json_next(j, err);
    if (c != '[') {
        char word[32];
        return row_json_fail(j, err, "%s: %s where its list of whole numbers should", j->where,
                             row_json_shown(c, word));
    }
    j->at++;
    if (row_json_next(j, err) == ']') {
        j->at++;
        return 0;
    }
    for (;;) {
        int64_t v;
        if (fast_numbers(j, rule, out, err) != 0 || slow_number(j, rule, out->num, &v, err) != 0 ||
            add(j, rule, out, v, err) != 0) {
            return -1;
        }
        c = row_json_next(j, err);
        if (c != ',' && c != ']') {
            return row_json_unexpected(j, c, "a , or ]", err);
        }
        j->at++;
        if (c == ']') {
            return 0;
        }
    }
}
