#include "runtime/data/packed_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

enum key { KEY_IDS, KEY_LABELS, KEY_POSITIONS, KEY_SEGMENTS, KEY_MASK, NUM_KEYS };

static const char *const keys[NUM_KEYS + 1] = {"input_ids", "labels", "position_ids", "segment_ids",
                                               "attention_mask"};

const char *const packed_row_harmless[] = {"id",
                                           "idx",
                                           "index",
                                           "length",
                                           "meta",
                                           "metadata",
                                           "num_tokens",
                                           "source",
                                           "special_tokens_mask",
                                           "text",
                                           "token_type_ids",
                                           NULL};

static struct row_ints *list_of(struct packed_row *row, enum key key)
{
    struct row_ints *const lists[NUM_KEYS] = {&row->ids, &row->labels, &row->positions,
                                              &row->segments, &row->mask};
    return lists[key];
}

void packed_row_free(struct packed_row *row)
{
    for (int key = 0; key < NUM_KEYS; key++) {
        free(list_of(row, (enum key)key)->at);
    }
    *row = (struct packed_row){0};
}

/* ---- the line -------------------------------------------------------------------------------- */

/* "what from 0 to limit - 1 (key is limit)". */
static void range_words(char *out, size_t size, const char *what, int64_t limit, const char *key)
{
    int n = snprintf(out, size, "%s from 0 to %lld", what, (long long)limit - 1);
    if (limit != PACKED_ROW_ANY) {
        snprintf(out + n, size - (size_t)n, " (%s is %lld)", key, (long long)limit);
    }
}

static int read_list(struct packed_row *row, enum key key, struct row_json *j,
                     const struct packed_limits *limits, struct error *err)
{
    char wants[128];
    struct row_ints_rule rule = {
        .max = limits->max_tokens,
        .too_many = limits->max_tokens < PACKED_ROW_MAX_TOKENS
                        ? "that is training.seq_len: cut the row, or raise seq_len"
                        : "no row may be longer",
        .wants = wants,
    };
    switch (key) {
    case KEY_IDS:
        rule.limit = limits->vocab_size;
        range_words(wants, sizeof wants, "an id", rule.limit, "the model's vocab_size");
        break;
    case KEY_LABELS:
        rule.limit = limits->vocab_size;
        rule.also = PACKED_ROW_IGNORED;
        range_words(wants, sizeof wants, "-100 (no target) or an id", rule.limit,
                    "the model's vocab_size");
        break;
    case KEY_POSITIONS:
        rule.limit = limits->max_positions;
        range_words(wants, sizeof wants, "a position", rule.limit, "training.seq_len");
        break;
    case KEY_SEGMENTS:
        rule.limit = PACKED_ROW_ANY;
        rule.also = -1;
        range_words(wants, sizeof wants, "-1 (padding) or a document's number", rule.limit, "");
        break;
    case KEY_MASK:
    default:
        rule.limit = 2;
        snprintf(wants, sizeof wants, "1, or 0 for padding");
        break;
    }
    return row_json_ints(j, &rule, list_of(row, key), err);
}

static bool is_in(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word) != 0) {
        words++;
    }
    return *words != NULL;
}

static int unknown_key(const struct row_json *j, const char *key, struct error *err)
{
    const char *near = text_nearest(key, keys);
    return row_json_fail(j, err,
                         "\"%s\" is no key of a row; %s%s%sremove it, or begin its name with _ to "
                         "have it passed over (a row holds token ids: docs/data.md)",
                         key, near ? "did you mean " : "", near ? near : "", near ? "? Else " : "");
}

/* A key and its value. *seen: bits of the keys before. */
static int read_member(struct packed_row *row, unsigned *seen, struct row_json *j,
                       const struct packed_limits *limits, struct error *err)
{
    char name[ROW_JSON_KEY_MAX];
    j->where = "the row";
    if (row_json_string(j, name, err) != 0 ||
        row_json_take(j, ':', "the : behind a key", err) != 0) {
        return -1;
    }
    for (int key = 0; key < NUM_KEYS; key++) {
        if (strcmp(name, keys[key]) != 0) {
            continue;
        }
        bool is_null = false;
        j->where = keys[key];
        if (*seen & 1u << key) {
            return row_json_fail(j, err, "has %s twice", keys[key]);
        }
        if (key >= KEY_POSITIONS && row_json_null(j, &is_null, err) != 0) {
            return -1;
        }
        *seen |= is_null ? 0 : 1u << key;
        return is_null ? 0 : read_list(row, (enum key)key, j, limits, err);
    }
    if (name[0] == '_' || is_in(name, packed_row_harmless)) {
        return row_json_skip(j, err);
    }
    return unknown_key(j, name, err);
}

static int read_members(struct packed_row *row, unsigned *seen, struct row_json *j,
                        const struct packed_limits *limits, struct error *err)
{
    if (row_json_next(j, err) == '}') {
        j->at++;
        return 0;
    }
    for (;;) {
        if (read_member(row, seen, j, limits, err) != 0) {
            return -1;
        }
        int c = row_json_next(j, err);
        if (c == '}') {
            j->at++;
            return 0;
        }
        if (row_json_take(j, ',', "a , or the row's }", err) != 0) {
            return -1;
        }
    }
}

static int begin_row(struct row_json *j, struct error *err)
{
    j->where = "the row";
    int c = row_json_next(j, err);
    if (c < 0) {
        return row_json_fail(j, err, "the line is empty; remove it");
    }
    if (c == 0xef) {
        return row_json_fail(j, err,
                             "the line begins with a byte order mark; write the file as "
                             "UTF-8 without one");
    }
    return row_json_take(j, '{', "the { of {\"input_ids\": [...], \"labels\": [...]}", err);
}

/* ---- what the lists say together --------------------------------------------------------------
 */

static int check_lengths(struct packed_row *row, unsigned seen, const struct row_json *j,
                         struct error *err)
{
    for (int key = KEY_IDS; key <= KEY_LABELS; key++) {
        if (!(seen & 1u << key)) {
            return row_json_fail(j, err,
                                 "has no %s; a row needs input_ids, and as many labels "
                                 "(already shifted; -100 where there is no target)",
                                 keys[key]);
        }
    }
    row->num_tokens = row->ids.num;
    for (int key = KEY_LABELS; key < NUM_KEYS; key++) {
        int64_t num = list_of(row, (enum key)key)->num;
        if (seen & 1u << key && num != row->num_tokens) {
            return row_json_fail(j, err, "%s has %lld numbers, input_ids %lld; they go together",
                                 keys[key], (long long)num, (long long)row->num_tokens);
        }
    }
    return 0;
}

/* Is every label from place i on -100? */
static bool all_ignored(const struct packed_row *row, int64_t i)
{
    while (i < row->num_tokens && row->labels.at[i] == PACKED_ROW_IGNORED) {
        i++;
    }
    return i == row->num_tokens;
}

/* Padding by the mask is cut off. */
static int apply_mask(struct packed_row *row, const struct row_json *j, struct error *err)
{
    const int32_t *mask = row->mask.at;
    int64_t n = 0, i;
    while (n < row->num_tokens && mask[n]) {
        n++;
    }
    for (i = n; i < row->num_tokens && !mask[i]; i++) {
    }
    if (i < row->num_tokens) {
        return row_json_fail(j, err,
                             "attention_mask[%lld] is 1 behind a 0; padding stands at the "
                             "end of a row: pad on the right",
                             (long long)i);
    }
    if (!all_ignored(row, n)) {
        return row_json_fail(j, err,
                             "attention_mask is 0 from place %lld on, where labels has "
                             "targets; padding has none (-100)",
                             (long long)n);
    }
    row->num_tokens = n;
    return 0;
}

/* Numbers documents 0, 1, 2, ...; padding by the last number is cut off. */
static int number_documents(struct packed_row *row, const struct row_json *j, struct error *err)
{
    int32_t *segment = row->segments.at, document = 0, before = segment[0];
    if (before < 0) {
        return row_json_fail(j, err, "segment_ids[0] is -1: the row is nothing but padding");
    }
    for (int64_t i = 0; i < row->num_tokens; i++) {
        int32_t now = segment[i];
        if (now < before) {
            int64_t end = i;
            while (end < row->num_tokens && segment[end] == now) {
                end++;
            }
            if (end == row->num_tokens && all_ignored(row, i)) {
                row->num_tokens = i;
                return 0;
            }
            return row_json_fail(j, err,
                                 "segment_ids[%lld] is %d behind %d; the tokens of a document lie "
                                 "together, and each next document has a higher number (only a "
                                 "last one whose labels are all -100 may be lower: padding)",
                                 (long long)i, now, before);
        }
        document += now != before;
        before = now;
        segment[i] = document;
    }
    return 0;
}

static int one_document(struct packed_row *row, bool has_positions, const struct row_json *j,
                        struct error *err)
{
    const int32_t *position = row->positions.at;
    for (int64_t i = 1; has_positions && i < row->num_tokens; i++) {
        if (position[i] <= position[i - 1]) {
            return row_json_fail(j, err,
                                 "position_ids[%lld] is %d behind %d: where a document begins "
                                 "anew, segment_ids has to say so (0, 0, 1, 1, ...), else the "
                                 "documents see each other",
                                 (long long)i, position[i], position[i - 1]);
        }
    }
    memset(row->segments.at, 0, (size_t)row->num_tokens * sizeof *row->segments.at);
    return 0;
}

/* What wasn't given: as much room as the ids have. */
static int make_room(struct row_ints *list, int64_t n, struct error *err)
{
    if (list->cap < n) {
        int32_t *at = realloc(list->at, (size_t)n * sizeof *at);
        if (!at) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for a row");
        }
        list->at = at;
        list->cap = n;
    }
    list->num = n;
    return 0;
}

/* Positions where none were given, and the counts. */
static void finish(struct packed_row *row, bool has_positions)
{
    const int32_t *id = row->ids.at, *label = row->labels.at, *segment = row->segments.at;
    int32_t *position = row->positions.at;
    int32_t max_id = 0, max_label = 0;
    int64_t in_document = 0;
    row->num_targets = row->attended = row->num_unshifted = row->num_shifted = 0;
    row->max_position = 0;
    for (int64_t i = 0; i < row->num_tokens; i++) {
        in_document = i > 0 && segment[i] == segment[i - 1] ? in_document + 1 : 0;
        row->attended += in_document + 1;
        if (!has_positions) {
            position[i] = (int32_t)in_document;
        }
        row->max_position = position[i] > row->max_position ? position[i] : row->max_position;
        max_id = id[i] > max_id ? id[i] : max_id;
        max_label = label[i] > max_label ? label[i] : max_label;
        row->num_targets += label[i] != PACKED_ROW_IGNORED;
        row->num_unshifted += label[i] == id[i];
        row->num_shifted += i + 1 < row->num_tokens && label[i] == id[i + 1];
    }
    row->max_is_label = max_label > max_id;
    row->max_id = row->max_is_label ? max_label : max_id;
}

static int judge(struct packed_row *row, unsigned seen, const struct row_json *j, struct error *err)
{
    bool has_positions = seen & 1u << KEY_POSITIONS, has_segments = seen & 1u << KEY_SEGMENTS;
    if (check_lengths(row, seen, j, err) != 0 ||
        (seen & 1u << KEY_MASK && apply_mask(row, j, err) != 0)) {
        return -1;
    }
    if (row->num_tokens == 0) {
        return row_json_fail(j, err, "the row has no tokens; remove it");
    }
    if (make_room(&row->positions, row->num_tokens, err) != 0 ||
        make_room(&row->segments, row->num_tokens, err) != 0) {
        return -1;
    }
    if ((has_segments ? number_documents(row, j, err) : one_document(row, has_positions, j, err)) !=
        0) {
        return -1;
    }
    finish(row, has_positions);
    return 0;
}

int packed_row_parse(struct packed_row *row, struct row_json *j, const struct packed_limits *limits,
                     struct error *err)
{
    unsigned seen = 0;
    ASSERT(limits->max_tokens <= PACKED_ROW_MAX_TOKENS &&
           limits->max_tokens <= limits->max_positions);
    if (begin_row(j, err) != 0 || read_members(row, &seen, j, limits, err) != 0 ||
        row_json_end_line(j, err) != 0) {
        return -1;
    }
    return judge(row, seen, j, err);
}
