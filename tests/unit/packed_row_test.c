/* runtime/data: rows of packed documents, one line each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/packed_row.h"

static const struct packed_limits limits = {
    .max_tokens = 8, .vocab_size = 100, .max_positions = 16};

/* Gives a text in pieces of `step` bytes. */
struct pieces {
    const char *at, *end;
    size_t step;
};

static int next_piece(void *ctx, const char **at, const char **end, struct error *err)
{
    struct pieces *p = ctx;
    (void)err;
    size_t left = (size_t)(p->end - p->at), n = left < p->step ? left : p->step;
    *at = p->at;
    *end = p->at += n;
    return n > 0;
}

static int parse(struct packed_row *row, const char *text, size_t len, size_t step,
                 struct error *err)
{
    struct pieces p = {.at = text, .end = text + len, .step = step};
    struct row_json j = {.more = next_piece, .ctx = &p};
    return packed_row_parse(row, &j, &limits, err);
}

static void expect(const struct row_ints *list, int64_t n, const int32_t *want)
{
    assert_memory_equal(list->at, want, (size_t)n * sizeof *want);
}

#define EXPECT(list, ...)                                                                          \
    expect(&(list), (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)),                 \
           (const int32_t[]){__VA_ARGS__})

static void parse_well(struct packed_row *row, const char *text)
{
    struct error err = {0};
    if (parse(row, text, strlen(text), 1000, &err) != 0) {
        fail_msg("%s: %s", text, err.text);
    }
}

static void a_row_has_tokens_targets_positions_and_documents(void **state)
{
    (void)state;
    struct packed_row row = {0};
    parse_well(&row, "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [-100, 7, -100, 9, 3], "
                     "\"position_ids\": [0, 1, 2, 0, 1], \"segment_ids\": [4, 4, 4, 9, 9]}\n");
    assert_int_equal(row.num_tokens, 5);
    EXPECT(row.ids, 5, 6, 7, 8, 9);
    EXPECT(row.labels, -100, 7, -100, 9, 3);
    EXPECT(row.positions, 0, 1, 2, 0, 1);
    EXPECT(row.segments, 0, 0, 0, 1, 1);
    assert_int_equal(row.num_targets, 3);
    assert_int_equal(row.attended, 1 + 2 + 3 + 1 + 2);
    assert_int_equal(row.max_id, 9);
    assert_int_equal(row.max_position, 2);
    packed_row_free(&row);
}

/* Absent or null: positions restart in each document, a row is one document. */
static void what_may_be_absent_follows_from_the_rest(void **state)
{
    (void)state;
    struct packed_row row = {0};
    parse_well(&row, "{\"labels\":[1,2,3],\"input_ids\":[4,5,6],\"segment_ids\":[0,1,1]}");
    EXPECT(row.positions, 0, 0, 1);
    EXPECT(row.segments, 0, 1, 1);
    assert_int_equal(row.attended, 4);
    parse_well(&row, "{\"labels\":[1,2,3],\"input_ids\":[4,5,6],\"position_ids\":[3,4,15]}");
    EXPECT(row.positions, 3, 4, 15);
    EXPECT(row.segments, 0, 0, 0);
    assert_int_equal(row.attended, 6);
    parse_well(&row, "{\"segment_ids\": null, \"labels\":[1,2],\"input_ids\":[4,5],"
                     "\"position_ids\":null,\"attention_mask\":null}");
    EXPECT(row.positions, 0, 1);
    EXPECT(row.segments, 0, 0);
    /* Whoever says that it is one document may restart positions in it. */
    parse_well(&row, "{\"segment_ids\": [0,0], \"labels\":[1,2],\"input_ids\":[4,5],"
                     "\"position_ids\":[0,0]}");
    EXPECT(row.positions, 0, 0);
    packed_row_free(&row);
}

/* By attention_mask, or by a last segment that is lower; its labels are all -100. */
static void padding_of_the_file_is_no_part_of_a_row(void **state)
{
    (void)state;
    struct packed_row row = {0};
    parse_well(&row, "{\"input_ids\":[4,5,0,0],\"labels\":[1,2,-100,-100],"
                     "\"attention_mask\":[1,1,0,0]}");
    assert_int_equal(row.num_tokens, 2);
    assert_int_equal(row.attended, 3);
    parse_well(&row, "{\"input_ids\":[4,5,6,0,0],\"labels\":[1,2,3,-100,-100],"
                     "\"segment_ids\":[1,1,2,0,0]}");
    assert_int_equal(row.num_tokens, 3);
    EXPECT(row.segments, 0, 0, 1);
    parse_well(&row, "{\"input_ids\":[4,0],\"labels\":[1,-100],\"segment_ids\":[0,-1]}");
    assert_int_equal(row.num_tokens, 1);
    packed_row_free(&row);
}

/* What libraries leave in a row and what says nothing about training is passed over, whatever it
 * holds. */
static void harmless_keys_are_passed_over(void **state)
{
    (void)state;
    struct packed_row row = {0};
    for (size_t i = 0; packed_row_harmless[i]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"%s\": [{\"a\": \"\\ud83d\\ude00 \\\" ]}\", \"b\": [1e9, -0.5, true, null]}], "
                 "\"input_ids\":[1],\"labels\":[2]}",
                 packed_row_harmless[i]);
        parse_well(&row, text);
    }
    parse_well(&row, "{\"_mine\": \"\xc3\xa4\", \"\\u0069nput_ids\":[1],\"labels\":[2]}");
    packed_row_free(&row);
}

/* White space of JSON, and a line that ends as other systems end theirs. */
static void white_space_changes_nothing(void **state)
{
    (void)state;
    struct packed_row row = {0};
    parse_well(&row, " \t{ \"input_ids\" :\t[ 4 ,5,  6 ] , \"labels\":[-100,-0,99]\t} \r\n{");
    EXPECT(row.ids, 4, 5, 6);
    EXPECT(row.labels, -100, 0, 99);
    packed_row_free(&row);
}

static const struct {
    const char *text, *words;
} wrong[] = {
    {"", "the line is empty; remove it"},
    {"  \n{}", "the line is empty; remove it"},
    {"[1]", "\"[\" stands where the { of {\"input_ids\": [...], \"labels\": [...]} should"},
    {"\xef\xbb\xbf{}", "byte order mark"},
    {"{}", "has no input_ids; a row needs"},
    {"{\"input_ids\":[1]}", "has no labels; a row needs input_ids, and as many labels"},
    {"{\"input_ids\":[1],\"labels\":[1],\"input_ids\":[1]}", "has input_ids twice"},
    {"{\"input_ids\":[1],\"labels\":[1],}", "\"}\" stands where a string should"},
    {"{\"input_ids\":[1],\"labels\":[1]} x", "\"x\" stands where the end of the line"},
    {"{\"input_ids\":[1],\"labels\":[1]", "the line ends where a , or the row's } should; a row "
                                          "stands on one line"},
    {"{\"input_ids\":[1,\n2],\"labels\":[1,2]}", "the line ends where a number should"},
    {"{\"input_ids\":[1", "the line ends where"},
    {"{\"input_ids\":[1,2],\"labels\":[1]}", "labels has 1 numbers, input_ids 2"},
    {"{\"input_ids\":[1],\"labels\":[1],\"position_ids\":[]}", "position_ids has 0 numbers"},
    {"{\"input_ids\":[1],\"labels\":[1],\"segment_ids\":[0,0]}", "segment_ids has 2 numbers"},
    {"{\"input_ids\":[1],\"labels\":[1],\"attention_mask\":[1,1]}", "attention_mask has 2"},
    {"{\"input_ids\":[],\"labels\":[]}", "the row has no tokens; remove it"},
    {"{\"input_ids\":[1,100],\"labels\":[1,1]}",
     "input_ids[1] is 100; wants an id from 0 to 99 (the model's vocab_size is 100)"},
    {"{\"input_ids\":[-1],\"labels\":[1]}", "input_ids[0] is -1; wants an id from 0 to 99"},
    {"{\"input_ids\":[99999999999999],\"labels\":[1]}", "input_ids[0] is 99999999999999; wants an"},
    {"{\"input_ids\":[123456789012345678901234567890],\"labels\":[1]}",
     "input_ids[0] is 12345678901234567890...; wants"},
    {"{\"input_ids\":[1],\"labels\":[100]}",
     "labels[0] is 100; wants -100 (no target) or an id from 0 to 99"},
    {"{\"input_ids\":[1],\"labels\":[-1]}", "labels[0] is -1; wants -100 (no target)"},
    {"{\"input_ids\":[1],\"labels\":[-101]}", "labels[0] is -101"},
    {"{\"input_ids\":[1],\"labels\":[1],\"position_ids\":[-1]}", "position_ids[0] is -1; wants"},
    {"{\"input_ids\":[1],\"labels\":[1],\"position_ids\":[16]}",
     "position_ids[0] is 16; wants a position from 0 to 15 (training.seq_len is 16)"},
    {"{\"input_ids\":[1],\"labels\":[1],\"segment_ids\":[-2]}", "segment_ids[0] is -2; wants"},
    {"{\"input_ids\":[1],\"labels\":[-100],\"segment_ids\":[-1]}", "nothing but padding"},
    {"{\"input_ids\":[1],\"labels\":[1],\"segment_ids\":[2147483648]}", "segment_ids[0] is"},
    {"{\"input_ids\":[1,2,3],\"labels\":[1,2,3],\"segment_ids\":[1,2,1]}",
     "segment_ids[2] is 1 behind 2; the tokens of a document lie together"},
    {"{\"input_ids\":[1,2,3],\"labels\":[1,-100,3],\"segment_ids\":[2,1,2]}", "segment_ids[1]"},
    {"{\"input_ids\":[1,2,3],\"labels\":[1,2,3],\"position_ids\":[0,1,0]}",
     "position_ids[2] is 0 behind 1: where a document begins anew, segment_ids has to say so"},
    {"{\"input_ids\":[1,2],\"labels\":[1,2],\"attention_mask\":[0,1]}", "pad on the right"},
    {"{\"input_ids\":[1,2],\"labels\":[1,2],\"attention_mask\":[1,0]}",
     "attention_mask is 0 from place 1 on, where labels has targets"},
    {"{\"input_ids\":[1],\"labels\":[1],\"attention_mask\":[2]}",
     "attention_mask[0] is 2; wants 1"},
    {"{\"input_ids\":[1],\"labels\":[-100],\"attention_mask\":[0]}", "the row has no tokens"},
    {"{\"input_ids\":[1,2,3,4,5,6,7,8,9],\"labels\":[]}",
     "input_ids has more than 8 numbers; that is training.seq_len: cut the row, or raise seq_len"},
    {"{\"input_ids\":[1.0],\"labels\":[1]}", "input_ids[0] is 1.0, a fraction by its writing; "
                                             "wants a whole number, written plainly (12)"},
    {"{\"input_ids\":[1e1],\"labels\":[1]}", "input_ids[0] is 1e1, a fraction by its writing"},
    {"{\"input_ids\":[\"1\"],\"labels\":[1]}", "input_ids[0] is \"1\", a string; wants"},
    {"{\"input_ids\":[[1]],\"labels\":[1]}", "input_ids[0] is [1, a list or an object"},
    {"{\"input_ids\":[null],\"labels\":[1]}", "input_ids[0] is null; wants a whole number"},
    {"{\"input_ids\":[01],\"labels\":[1]}", "input_ids[0] is 01; wants a whole number, written"},
    {"{\"input_ids\":[+1],\"labels\":[1]}", "input_ids[0] is +1; wants"},
    {"{\"input_ids\":[-],\"labels\":[1]}", "input_ids[0] is -; wants"},
    {"{\"input_ids\":[1 2],\"labels\":[1]}", "\"2\" stands where a , or ] should"},
    {"{\"input_ids\":[1,],\"labels\":[1]}", "\"]\" stands where a number should"},
    {"{\"input_ids\":[,1],\"labels\":[1]}", "\",\" stands where a number should"},
    {"{\"input_ids\":5,\"labels\":[1]}", "input_ids: \"5\" stands where its list of whole numbers"},
    {"{\"input_ids\":null,\"labels\":[1]}", "input_ids: \"n\" stands where its list"},
    {"{\"labels\":[1],\"input_id\":[1]}",
     "\"input_id\" is no key of a row; did you mean input_ids? Else remove it, or begin its name "
     "with _"},
    {"{\"loss_mask\":[1]}", "\"loss_mask\" is no key of a row; remove it"},
    {"{\"text\":\"a\x01\"}", "byte 0x01 stands where the rest of a string should"},
    {"{\"text\":\"a\\x\"}", "\"x\" stands where an escape of JSON should"},
    {"{\"text\":\"\\u12g4\"}", "\"g\" stands where a digit of \\uXXXX should"},
    {"{\"text\":\"\\ud800\"}", "the other half of a \\u escape"},
    {"{\"text\":\"\\ud800\\u0041\"}", "half a character"},
    {"{\"text\":\"\\udc00\"}", "half a character"},
    {"{\"text\":-}", "\"}\" stands where a digit should"},
    {"{\"text\":1.}", "\"}\" stands where a digit should"},
    {"{\"text\":1e+}", "\"}\" stands where a digit should"},
    {"{\"text\":tru}", "\"}\" stands where true should"},
    {"{\"text\":{\"a\" 1}}", "\"1\" stands where the : behind a key should"},
    {"{\"text\":[1}", "\"}\" stands where a , or ] should"},
    {"{\"text\":}", "\"}\" stands where a value should"},
    {"{1:2}", "\"1\" stands where a string should"},
};

/* In words that name key and place; the same however the bytes come in. */
static void wrong_rows_are_refused_in_words(void **state)
{
    (void)state;
    struct packed_row row = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char first[ERROR_TEXT_MAX] = "";
        for (size_t step = 1; step <= 256; step = step < 9 ? step + 1 : step * 3) {
            struct error err = {0};
            if (parse(&row, wrong[i].text, strlen(wrong[i].text), step, &err) == 0) {
                fail_msg("was taken: %s", wrong[i].text);
            }
            assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
            if (!strstr(err.text, wrong[i].words)) {
                fail_msg("%s says \"%s\", wanted \"%s\"", wrong[i].text, err.text, wrong[i].words);
            }
            if (step > 1) {
                assert_string_equal(err.text, first);
            }
            snprintf(first, sizeof first, "%s", err.text);
        }
    }
    packed_row_free(&row);
}

static void a_zero_byte_is_named(void **state)
{
    (void)state;
    struct packed_row row = {0};
    static const char utf16[] = "{\0\"\0i\0", middle[] = "{\"input_ids\":[1,\0 2]}";
    struct error err = {0};
    assert_int_equal(parse(&row, utf16, sizeof utf16 - 1, 64, &err), -1);
    assert_non_null(
        strstr(err.text, "a zero byte stands where a string should; is the file UTF-16"));
    assert_int_equal(parse(&row, middle, sizeof middle - 1, 64, &err), -1);
    assert_non_null(strstr(err.text, "input_ids[1] is ?"));
    packed_row_free(&row);
}

/* Nesting is bounded: no line can use up the stack. */
static void deep_values_are_refused(void **state)
{
    (void)state;
    struct packed_row row = {0};
    struct error err = {0};
    size_t n = 1 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, '[', n);
    memcpy(text, "{\"text\":", 8);
    assert_int_equal(parse(&row, text, n, n, &err), -1);
    assert_non_null(strstr(err.text, "values are nested more than 32 deep"));
    free(text);
    packed_row_free(&row);
}

/* Each way to cut the bytes into pieces gives the same row. */
static void pieces_of_any_size_give_the_same_row(void **state)
{
    (void)state;
    static const char text[] =
        "{\"text\": \"a\\u00e4\\\\\", \"input_ids\": [10, 2,33 , 4], \"labels\": [-100,-100,99, 4],"
        "\"position_ids\":[0,1,0,1], \"segment_ids\": [0, 0, 12345678,12345678]}\n";
    struct packed_row row = {0};
    for (size_t step = 1; step <= sizeof text; step++) {
        struct error err = {0};
        if (parse(&row, text, sizeof text - 1, step, &err) != 0) {
            fail_msg("%zu: %s", step, err.text);
        }
        EXPECT(row.ids, 10, 2, 33, 4);
        EXPECT(row.labels, -100, -100, 99, 4);
        EXPECT(row.positions, 0, 1, 0, 1);
        EXPECT(row.segments, 0, 0, 1, 1);
    }
    packed_row_free(&row);
}

static int broken_disk(void *ctx, const char **at, const char **end, struct error *err)
{
    (void)ctx, (void)at, (void)end;
    return error_set(err, ERR_DATA_LOSS, "the disk is broken");
}

/* What failed is the reading, so that is what is said. */
static void a_failed_read_is_not_called_a_wrong_row(void **state)
{
    (void)state;
    static const char text[] = "{\"text\":[1,\"a\\ud800\\u", ints[] = "{\"input_ids\":[1,22,3";
    for (size_t len = 0; len < 2 * sizeof ints; len++) {
        struct packed_row row = {0};
        struct error err = {0};
        const char *from = len < sizeof ints ? ints : text;
        struct row_json j = {.at = from, .end = from + len % sizeof ints, .more = broken_disk};
        assert_int_equal(packed_row_parse(&row, &j, &limits, &err), -1);
        assert_string_equal(err.text, "the disk is broken");
        assert_true(j.failed);
        packed_row_free(&row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_tokens_targets_positions_and_documents),
        cmocka_unit_test(what_may_be_absent_follows_from_the_rest),
        cmocka_unit_test(padding_of_the_file_is_no_part_of_a_row),
        cmocka_unit_test(harmless_keys_are_passed_over),
        cmocka_unit_test(white_space_changes_nothing),
        cmocka_unit_test(wrong_rows_are_refused_in_words),
        cmocka_unit_test(a_zero_byte_is_named),
        cmocka_unit_test(deep_values_are_refused),
        cmocka_unit_test(pieces_of_any_size_give_the_same_row),
        cmocka_unit_test(a_failed_read_is_not_called_a_wrong_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
