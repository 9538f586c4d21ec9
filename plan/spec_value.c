#include "plan/spec_value.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "proto/field.h"
#include "proto/number.h"
#include "proto/text.h"

#define SHOWN_MAX 64

/* The value as the user may have written it, cut to what a message can carry. */
static void show(char out[SHOWN_MAX], const ProtobufCFieldDescriptor *field, const void *at)
{
    ProtobufCType type = field->type;
    if (type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(const char *const *)at;
        snprintf(out, SHOWN_MAX, strlen(text) < 40 ? "%s" : "%.40s...", text);
    } else if (type == PROTOBUF_C_TYPE_BOOL) {
        snprintf(out, SHOWN_MAX, "%s", field_int(type, at) ? "true" : "false");
    } else if (field_type_is_unsigned(type)) {
        snprintf(out, SHOWN_MAX, "%" PRIu64, (uint64_t)field_int(type, at));
    } else if (field_type_is_int(type)) {
        snprintf(out, SHOWN_MAX, "%" PRId64, field_int(type, at));
    } else {
        char number[NUMBER_TEXT_MAX];
        number_format(number, field_real(type, at));
        snprintf(out, SHOWN_MAX, "%s", number);
    }
}

static bool same_value(const ProtobufCFieldDescriptor *field, const void *a, const void *b)
{
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        return strcmp(a, b) == 0;
    }
    return field_type_is_int(field->type)
               ? field_int(field->type, a) == field_int(field->type, b)
               : !(field_real(field->type, a) < field_real(field->type, b)) &&
                     !(field_real(field->type, a) > field_real(field->type, b));
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int check_number(const char *path, const struct spec_rule *rule,
                        const ProtobufCFieldDescriptor *field, const void *at, struct error *err)
{
    bool whole = field_type_is_int(field->type);
    double value = whole ? (double)field_int(field->type, at) : field_real(field->type, at);
    bool above = rule->kind == SPEC_POSITIVE ? value > 0 : value >= rule->min;
    if (above && value <= rule->max) {
        return 0;
    }
    char shown[SHOWN_MAX], min[NUMBER_TEXT_MAX], max[NUMBER_TEXT_MAX];
    show(shown, field, at);
    number_format(min, rule->min);
    number_format(max, rule->max);
    if (rule->kind == SPEC_POSITIVE) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s: wants a number above 0 and up to %s",
                         path, shown, max);
    }
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s: wants a %s from %s to %s", path, shown,
                     whole ? "whole number" : "number", min, max);
}

/* ---- names ----------------------------------------------------------------------------------- */

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define NAME_LEN_MAX 64

static int check_name(const char *path, const char *shown, const char *name, struct error *err)
{
    size_t len = strlen(name);
    const char *wrong = NULL;
    if (len == 0) {
        wrong = "is empty";
    } else if (len > NAME_LEN_MAX) {
        wrong = "is longer than 64 characters";
    } else if (strspn(name, NAME_CHARS) != len) {
        wrong = "holds other than letters, digits, dot, dash and underscore";
    } else if (*name == '.' || *name == '-') {
        wrong = "begins with a dot or dash";
    } else if (strspn(name, "0123456789") == len) {
        wrong = "is a number, as ids are; add a letter";
    }
    return wrong ? error_set(err, ERR_INVALID_ARGUMENT, "%s: \"%s\" %s", path, shown, wrong) : 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void put_words(struct buf *out, const struct spec_words *words, const char *last)
{
    for (size_t i = 0; i < words->num; i++) {
        buf_printf(out, "%s%s", i == 0 ? "" : i + 1 == words->num ? last : ", ", words->word[i]);
    }
}

static bool has_word(const struct spec_words *words, const char *word)
{
    for (size_t i = 0; i < words->num; i++) {
        if (strcmp(words->word[i], word) == 0) {
            return true;
        }
    }
    return false;
}

/* A word that is known and not built: noted where it can be planned. */
static bool note_word(const char *path, const struct spec_rule *rule, const char *word,
                      struct spec_unbuilt *unbuilt)
{
    struct spec_words later, never;
    spec_words_split(&later, rule->later, NULL);
    spec_words_split(&never, rule->unplanned, NULL);
    if (!unbuilt || !has_word(&later, word) || has_word(&never, word)) {
        return false;
    }
    spec_unbuilt_add(unbuilt, "%s: %s is not built yet", path, word);
    return true;
}

/* What other programs call it. */
static const char *word_of_others(const struct spec_words *words, const char *word)
{
    static const char *const others[][2] = {
        {"bfloat16", "bf16"}, {"float32", "fp32"}, {"float", "fp32"}, {"float64", "fp64"},
        {"double", "fp64"},   {"float16", "fp16"}, {"half", "fp16"},  {"gpu", "cuda"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcasecmp(word, others[i][0]) == 0 && has_word(words, others[i][1])) {
            return others[i][1];
        }
    }
    return NULL;
}

/* also: what else than a word is possible; may be empty. */
static int fail_word(const char *path, const struct spec_rule *rule, const char *shown,
                     const char *word, const char *also, struct error *err)
{
    struct spec_words built, all;
    spec_words_split(&built, rule->words, NULL);
    spec_words_split(&all, rule->words, rule->later);
    bool known = has_word(&all, word);
    struct buf list = {0};
    if (known) {
        put_words(&list, &built, " or ");
    } else {
        put_words(&list, &all, ", ");
    }
    if (*also) {
        buf_printf(&list, "%s%s", list.len ? " or " : "", also);
    }
    int rc;
    if (known) {
        rc = error_set(err, ERR_INVALID_ARGUMENT, "%s: %s: not built yet; use %s", path, shown,
                       list.data);
    } else {
        const char *near = word_of_others(&all, word);
        near = near ? near : text_nearest(word, all.word);
        rc = error_set(err, ERR_INVALID_ARGUMENT, "%s: \"%s\" is not %s%s%s%s%s", path, shown,
                       all.num > 1 ? "one of " : "", list.data, near ? "; did you mean " : "",
                       near ? near : "", near ? "?" : "");
    }
    buf_free(&list);
    return rc;
}

static int check_word(const char *path, const struct spec_rule *rule, const char *shown,
                      const char *word, struct spec_unbuilt *unbuilt, struct error *err)
{
    struct spec_words built;
    spec_words_split(&built, rule->words, NULL);
    if (has_word(&built, word) || note_word(path, rule, word, unbuilt)) {
        return 0;
    }
    if (rule->open) {
        return check_name(path, shown, word, err);
    }
    /* A choice of word or mapping: without built words only the mapping is left. */
    return fail_word(path, rule, shown, word, built.num ? "" : "the fields of a mapping", err);
}

/* A word or a whole number. */
static int check_word_or_number(const char *path, const struct spec_rule *rule, const char *shown,
                                const char *word, struct spec_unbuilt *unbuilt, struct error *err)
{
    struct spec_words built;
    spec_words_split(&built, rule->words, NULL);
    int64_t number;
    bool is_number = number_i64(word, strlen(word), &number);
    if (has_word(&built, word) || note_word(path, rule, word, unbuilt) ||
        (is_number && (double)number >= rule->min && (double)number <= rule->max)) {
        return 0;
    }
    char range[96], max[NUMBER_TEXT_MAX];
    number_format(max, rule->max);
    snprintf(range, sizeof range, "a whole number from %.0f to %s", rule->min, max);
    if (is_number) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s: wants %s", path, shown, range);
    }
    return fail_word(path, rule, shown, word, range, err);
}

/* ---- tags and paths -------------------------------------------------------------------------- */

static int check_tag(const char *path, const char *shown, const char *tag, struct error *err)
{
    size_t len = strlen(tag);
    if (len == 0 || len > NAME_LEN_MAX || strpbrk(tag, "\n\t")) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: \"%s\": wants 1 to 64 characters on one line", path, shown);
    }
    return 0;
}

static int check_path(const char *path, const char *shown, const char *file, struct error *err)
{
    if (*file != '/') {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: \"%s\": wants an absolute path (the CLI makes it one, counting from "
                         "the job file)",
                         path, shown);
    }
    if (strlen(file) >= PATH_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: longer than %d bytes", path, PATH_MAX - 1);
    }
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int check_kind(const char *path, const struct spec_rule *rule,
                      const ProtobufCFieldDescriptor *field, const void *at,
                      struct spec_unbuilt *unbuilt, struct error *err)
{
    char shown[SHOWN_MAX];
    const char *text = NULL;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        text = *(const char *const *)at;
        show(shown, field, at);
    }
    switch (rule->kind) {
    case SPEC_FREE:
        return 0;
    case SPEC_RANGE:
    case SPEC_POSITIVE:
        return check_number(path, rule, field, at, err);
    case SPEC_WORD:
        return check_word(path, rule, shown, text, unbuilt, err);
    case SPEC_PRIORITY:
    case SPEC_INTERVAL:
        return check_word_or_number(path, rule, shown, text, unbuilt, err);
    case SPEC_NAME:
        return check_name(path, shown, text, err);
    case SPEC_TAG:
        return check_tag(path, shown, text, err);
    case SPEC_PATH:
        return check_path(path, shown, text, err);
    case SPEC_UNBUILT:
        if (unbuilt && !rule->unplanned) {
            spec_unbuilt_add(unbuilt, "%s: %s is not built yet", path, rule->unbuilt);
            return 0;
        }
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s is not built yet; leave it out", path,
                         rule->unbuilt);
    }
    return 0;
}

int spec_value_check(const char *path, const struct spec_rule *rule,
                     const ProtobufCFieldDescriptor *field, const void *at,
                     struct spec_unbuilt *unbuilt, struct error *err)
{
    if (check_kind(path, rule, field, at, unbuilt, err)) {
        return -1;
    }
    if (rule->kind == SPEC_UNBUILT) {
        return 0;
    }
    const void *value = field->type == PROTOBUF_C_TYPE_STRING ? *(const void *const *)at : at;
    if (!rule->unbuilt || same_value(field, value, field->default_value)) {
        return 0;
    }
    if (unbuilt) {
        spec_unbuilt_add(unbuilt, "%s: %s is not built yet", path, rule->unbuilt);
        return 0;
    }
    char shown[SHOWN_MAX], fallback[SHOWN_MAX];
    show(shown, field, at);
    show(fallback, field,
         field->type == PROTOBUF_C_TYPE_STRING ? (const void *)&field->default_value
                                               : field->default_value);
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: %s: %s is not built yet; use %s", path, shown,
                     rule->unbuilt, fallback);
}
