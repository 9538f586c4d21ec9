/* Random rows, whole and broken, through the row parser and through jansson with the rules written
 * down plainly: both take the same rows and make the same of them. TANDEM_SEED=N repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../effort.h"
#include "base/buf.h"
#include "base/rng.h"
#include "runtime/data/packed_row.h"

#define MAX_TOKENS 12
#define VOCAB 50
#define MAX_POSITIONS 20

static uint64_t seed, draws;

static int64_t draw(int64_t n)
{
    return (int64_t)rng_permute(seed, rng_stream("rows"), (uint64_t)1 << 62, draws++) % n;
}

/* ---- rows, more or less right -----------------------------------------------------------------
 */

static void put_space(struct buf *b)
{
    static const char *const spaces[] = {"", "", "", " ", "  ", "\t", " \r "};
    buf_puts(b, spaces[draw(7)]);
}

static void put_value(struct buf *b, int depth)
{
    static const char *const words[] = {"1",
                                        "-0.5e+3",
                                        "true",
                                        "false",
                                        "null",
                                        "\"\"",
                                        "\"a\\n\\u00e4\\ud83d\\ude00\"",
                                        "0",
                                        "1E5",
                                        "\"\xc3\xa4\"",
                                        "{}",
                                        "[]",
                                        "\"\\u0000\""};
    int64_t kind = draw(depth > 3 ? 13 : 17);
    if (kind < 13) {
        buf_puts(b, words[kind]);
        return;
    }
    bool object = kind % 2;
    buf_putc(b, object ? '{' : '[');
    for (int64_t i = 0, n = draw(4); i < n; i++) {
        buf_puts(b, i ? "," : "");
        put_space(b);
        if (object) {
            buf_printf(b, "\"k%lld\"", (long long)i);
            put_space(b);
            buf_putc(b, ':');
        }
        put_value(b, depth + 1);
        put_space(b);
    }
    buf_putc(b, object ? '}' : ']');
}

static int64_t number(int key, int64_t i, int64_t *segment)
{
    bool odd = draw(60) == 0; /* mostly a valid row */
    switch (key) {
    case 0:
        return draw(odd ? VOCAB + 3 : VOCAB) - (odd && draw(2));
    case 1:
        return draw(3) == 0 ? (odd ? -101 : -100) : draw(odd ? VOCAB + 3 : VOCAB);
    case 2:
        return odd ? draw(MAX_POSITIONS + 3) - 1 : i;
    case 3:
        *segment += draw(4) == 0 ? 1 + draw(3) : odd ? -1 : 0;
        return *segment;
    default:
        return odd ? draw(3) : 1;
    }
}

static void put_list(struct buf *b, int key, int64_t n)
{
    int64_t segment = draw(3) - (draw(40) == 0);
    n = draw(80) == 0 ? draw(MAX_TOKENS + 3) : n;
    put_space(b);
    buf_putc(b, '[');
    for (int64_t i = 0; i < n; i++) {
        put_space(b);
        buf_printf(b, "%s%lld", i ? "," : "", (long long)number(key, i, &segment));
        put_space(b);
    }
    buf_putc(b, ']');
}

static void put_row(struct buf *b)
{
    static const char *const keys[] = {"input_ids",   "labels",         "position_ids",
                                       "segment_ids", "attention_mask", "text",
                                       "_mine",       "length",         "label"};
    int64_t n = 1 + draw(MAX_TOKENS), first = draw(9);
    bool any = false;
    put_space(b);
    buf_putc(b, '{');
    for (int64_t k = 0; k < 9; k++) {
        int64_t key = (first + k) % 9;
        /* The required ones mostly, the wrong one hardly ever. */
        if (key < 2 ? draw(100) == 0 : key == 8 ? draw(100) != 0 : draw(2) == 0) {
            continue;
        }
        put_space(b);
        buf_printf(b, "%s\"%s\":", any ? "," : "", keys[key]);
        any = true;
        put_space(b);
        if (key < 5 && draw(60)) {
            put_list(b, (int)key, n);
        } else {
            put_value(b, 0);
        }
        put_space(b);
    }
    buf_putc(b, '}');
    put_space(b);
}

/* A few bytes changed, taken out, doubled. No newline: that would be another row. */
static void break_row(struct buf *b)
{
    static const char bytes[] = "{}[],:\"\\ -+.eE0123456789nulltruefa_\t\x01\x7f\xc3";
    for (int64_t i = 1 + draw(3); i > 0 && b->len > 1; i--) {
        size_t at = (size_t)draw((int64_t)b->len);
        switch (draw(3)) {
        case 0:
            b->data[at] = bytes[draw(sizeof bytes)]; /* the NUL, too */
            break;
        case 1:
            memmove(b->data + at, b->data + at + 1, b->len - at - 1);
            b->len--;
            break;
        default:
            buf_putc(b, ' ');
            memmove(b->data + at + 1, b->data + at, b->len - at - 1);
            break;
        }
    }
}

/* ---- what the row is, plainly -----------------------------------------------------------------
 */

struct plain {
    int64_t num, list[5][MAX_TOKENS]; /* ids, labels, positions, segments, mask */
    bool has[5];
};

static bool starts_key(const char *key)
{
    for (size_t i = 0; packed_row_harmless[i]; i++) {
        if (strcmp(packed_row_harmless[i], key) == 0) {
            return true;
        }
    }
    return key[0] == '_';
}

static bool read_plain_list(json_t *value, int key, struct plain *p, int64_t *num)
{
    static const int64_t limit[] = {VOCAB, VOCAB, MAX_POSITIONS, (int64_t)1 << 31, 2};
    static const int64_t also[] = {0, -100, 0, -1, 0};
    if (!json_is_array(value) || json_array_size(value) > MAX_TOKENS) {
        return false;
    }
    *num = (int64_t)json_array_size(value);
    for (int64_t i = 0; i < *num; i++) {
        json_t *element = json_array_get(value, (size_t)i);
        int64_t v = json_integer_value(element);
        if (!json_is_integer(element) || ((v < 0 || v >= limit[key]) && v != also[key])) {
            return false;
        }
        p->list[key][i] = v;
    }
    return true;
}

static bool read_plain(json_t *root, struct plain *p)
{
    static const char *const keys[] = {"input_ids", "labels", "position_ids", "segment_ids",
                                       "attention_mask"};
    const char *name;
    json_t *value;
    int64_t nums[5] = {0};
    *p = (struct plain){0};
    if (!json_is_object(root)) {
        return false;
    }
    json_object_foreach(root, name, value)
    {
        int key = 0;
        while (key < 5 && strcmp(keys[key], name) != 0) {
            key++;
        }
        if (key == 5 && !starts_key(name)) {
            return false;
        }
        if (key == 5 || (key >= 2 && json_is_null(value))) {
            continue;
        }
        p->has[key] = true;
        if (!read_plain_list(value, key, p, &nums[key])) {
            return false;
        }
    }
    p->num = nums[0];
    for (int key = 0; key < 5; key++) {
        if (key < 2 ? !p->has[key] : false) {
            return false;
        }
        if (p->has[key] && nums[key] != p->num) {
            return false;
        }
    }
    return true;
}

static bool no_targets_from(const struct plain *p, int64_t i)
{
    bool none = true;
    for (; i < p->num; i++) {
        none = none && p->list[1][i] == -100;
    }
    return none;
}

/* Cuts padding, numbers documents, fills in positions; false: no row. */
static bool judge_plain(struct plain *p)
{
    int64_t *segment = p->list[3], *position = p->list[2], ones = 0, last = 0;
    for (int64_t i = 0; p->has[4] && i < p->num; i++) {
        ones += p->list[4][i];
        last = p->list[4][i] ? i + 1 : last;
    }
    if (p->has[4] && (ones != last || !no_targets_from(p, last))) {
        return false;
    }
    p->num = p->has[4] ? last : p->num;
    if (p->num == 0 || (p->has[3] && segment[0] < 0)) {
        return false;
    }
    for (int64_t i = 1; p->has[3] && i < p->num; i++) {
        if (segment[i] >= segment[i - 1]) {
            continue;
        }
        for (int64_t k = i; k < p->num; k++) {
            if (segment[k] != segment[i]) {
                return false;
            }
        }
        if (!no_targets_from(p, i)) {
            return false;
        }
        p->num = i;
    }
    for (int64_t i = 1; !p->has[3] && p->has[2] && i < p->num; i++) {
        if (position[i] <= position[i - 1]) {
            return false;
        }
    }
    int64_t before = segment[0], document = 0, begin = 0;
    for (int64_t i = 0; i < p->num; i++) {
        if (p->has[3] && segment[i] != before) {
            before = segment[i];
            document++;
            begin = i;
        }
        segment[i] = document;
        position[i] = p->has[2] ? position[i] : i - begin;
    }
    return true;
}

/* ---- the comparison ---------------------------------------------------------------------------
 */

/* Where jansson's own limits decide, nothing follows. */
static bool is_no_verdict(const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_invalid_utf8:
    case json_error_numeric_overflow:
    case json_error_null_character:
    case json_error_null_byte_in_key:
    case json_error_duplicate_key:
        return true;
    default:
        return false;
    }
}

static void expect_list(const struct row_ints *got, const int64_t *want, int64_t n,
                        const struct buf *text)
{
    for (int64_t i = 0; i < n; i++) {
        if (got->at[i] != want[i]) {
            fail_msg("seed %llu: place %lld is %d, wanted %lld: %s", (unsigned long long)seed,
                     (long long)i, got->at[i], (long long)want[i], text->data);
        }
    }
}

static void expect_row(const struct packed_row *row, const struct plain *p, const struct buf *text)
{
    int64_t targets = 0, attended = 0;
    assert_int_equal(row->num_tokens, p->num);
    expect_list(&row->ids, p->list[0], p->num, text);
    expect_list(&row->labels, p->list[1], p->num, text);
    expect_list(&row->positions, p->list[2], p->num, text);
    expect_list(&row->segments, p->list[3], p->num, text);
    for (int64_t i = 0; i < p->num; i++) {
        targets += p->list[1][i] != -100;
        for (int64_t k = 0; k <= i; k++) {
            attended += p->list[3][k] == p->list[3][i];
        }
    }
    assert_int_equal(row->num_targets, targets);
    assert_int_equal(row->attended, attended);
}

/* 1 = taken by both. */
static int compare(struct packed_row *row, const struct buf *text)
{
    static const struct packed_limits limits = {
        .max_tokens = MAX_TOKENS, .vocab_size = VOCAB, .max_positions = MAX_POSITIONS};
    struct row_json j = {.at = text->data, .end = text->data + text->len};
    struct error err = {0};
    struct plain plain;
    json_error_t error;
    bool taken = packed_row_parse(row, &j, &limits, &err) == 0;
    if (memchr(text->data, 0, text->len)) {
        assert_false(taken); /* jansson loses one behind a number */
        return 0;
    }
    json_t *root =
        json_loadb(text->data, text->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root && is_no_verdict(&error)) {
        return 0;
    }
    bool want = root && read_plain(root, &plain) && judge_plain(&plain);
    json_decref(root);
    if (taken != want) {
        fail_msg("seed %llu: %s, jansson %s: %s", (unsigned long long)seed,
                 taken ? "taken" : err.text, want ? "takes it" : error.text, text->data);
    }
    if (taken) {
        expect_row(row, &plain, text);
    }
    return taken;
}

static void random_rows_are_what_jansson_says(void **state)
{
    (void)state;
    const char *given = getenv("TANDEM_SEED");
    int64_t num = given ? 1 : effort(1000000, 30000, 4000), taken = 0;
    struct packed_row row = {0};
    for (int64_t i = 0; i < num; i++) {
        struct buf text = {0};
        seed = given ? strtoull(given, NULL, 10) : (uint64_t)i;
        draws = 0;
        put_row(&text);
        if (draw(2)) {
            break_row(&text);
        }
        taken += compare(&row, &text);
        buf_free(&text);
    }
    packed_row_free(&row);
    print_message("%lld of %lld rows taken\n", (long long)taken, (long long)num);
    assert_true(given || (taken > num / 10 && taken < num * 9 / 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_rows_are_what_jansson_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
