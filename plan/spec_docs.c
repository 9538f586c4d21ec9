#include "plan/spec_docs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "proto/docs.h"
#include "proto/field.h"
#include "proto/names.h"
#include "proto/number.h"
#include "proto/text.h"

/* Bounds from here on are there to keep products small; for a reader they say nothing. */
#define BOUND_WORTH_SAYING 1e9

/* ---- what a field may hold ------------------------------------------------------------------ */

static const char *scalar_type(const ProtobufCFieldDescriptor *field, const struct spec_rule *rule)
{
    if (rule->kind == SPEC_PRIORITY || rule->kind == SPEC_INTERVAL) {
        return "word or whole number";
    }
    if (rule->kind == SPEC_WORD) {
        return "word";
    }
    if (rule->kind == SPEC_PATH) {
        return "path";
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return field_is_choice(field->descriptor) ? "word or mapping" : "mapping";
    case PROTOBUF_C_TYPE_STRING:
        return "text";
    case PROTOBUF_C_TYPE_BOOL:
        return "true or false";
    case PROTOBUF_C_TYPE_DOUBLE:
        return "number";
    default:
        return "whole number";
    }
}

static void put_type(struct spec_doc *doc)
{
    const char *one = scalar_type(doc->field, doc->rule);
    if (doc->field->label != PROTOBUF_C_LABEL_REPEATED) {
        snprintf(doc->type, sizeof doc->type, "%s", one);
        return;
    }
    bool countable = strcmp(one, "text") != 0;
    snprintf(doc->type, sizeof doc->type, "list of %s%s", one, countable ? "s" : "");
}

static void put_default(struct spec_doc *doc)
{
    const ProtobufCFieldDescriptor *field = doc->field;
    const void *value = field->default_value;
    char *out = doc->fallback;
    size_t size = sizeof doc->fallback;
    if (doc->rule->fill) {
        snprintf(out, size, "%s", doc->rule->fill);
    } else if (field->label == PROTOBUF_C_LABEL_REPEATED && !doc->rule->required) {
        snprintf(out, size, "[]");
    } else if (!value) {
        out[0] = 0;
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        /* An unquoted off would be a boolean to other YAML readers. */
        bool quote = strcmp(value, "off") == 0;
        snprintf(out, size, quote ? "\"%s\"" : "%s", (const char *)value);
    } else if (field->type == PROTOBUF_C_TYPE_BOOL) {
        snprintf(out, size, "%s", field_int(field->type, value) ? "true" : "false");
    } else if (field_type_is_int(field->type)) {
        snprintf(out, size, "%" PRId64, field_int(field->type, value));
    } else {
        char number[NUMBER_TEXT_MAX];
        number_format(number, field_real(field->type, value));
        snprintf(out, size, "%s", number);
    }
}

static void put_range(struct buf *out, const struct spec_rule *rule, bool whole)
{
    char min[NUMBER_TEXT_MAX], max[NUMBER_TEXT_MAX];
    bool open = rule->max >= BOUND_WORTH_SAYING;
    number_format(min, rule->min);
    number_format(max, rule->max);
    if (rule->kind == SPEC_POSITIVE) {
        buf_printf(out, open ? "above 0" : "above 0, up to %s", max);
    } else if (!whole && rule->max < 1 && rule->max > 0.999) {
        buf_printf(out, "from %s to below 1", min);
    } else {
        buf_printf(out, open ? "%s or more" : "%s to %s", min, max);
    }
}

static void put_words(struct buf *out, const char *text)
{
    struct spec_words words;
    spec_words_split(&words, text, NULL);
    for (size_t i = 0; i < words.num; i++) {
        buf_printf(out, "%s%s", i ? ", " : "", words.word[i]);
    }
}

static void put_names(struct buf *out, const ProtobufCEnumDescriptor *names)
{
    for (unsigned i = 0; names && i < names->n_values; i++) {
        buf_printf(out, ", %s", text_enum_word(names, names->values[i].value));
    }
}

static void put_kind(struct buf *out, const struct spec_doc *doc)
{
    const struct spec_rule *rule = doc->rule;
    switch (rule->kind) {
    case SPEC_RANGE:
    case SPEC_POSITIVE:
        put_range(out, rule, field_type_is_int(doc->field->type));
        put_names(out, text_names(doc->field));
        break;
    case SPEC_WORD:
        put_words(out, rule->words);
        buf_puts(out, rule->open ? ", or another that the cluster has" : "");
        break;
    case SPEC_PRIORITY:
    case SPEC_INTERVAL:
        put_words(out, rule->words);
        buf_puts(out, out->len ? ", or " : "");
        put_range(out, rule, true);
        break;
    case SPEC_NAME:
        buf_puts(out, "letters, digits, dot, dash, underscore; at most 64");
        break;
    case SPEC_TAG:
        buf_puts(out, "1 to 64 characters each");
        break;
    case SPEC_FREE:
    case SPEC_PATH:
    case SPEC_UNBUILT:
        break;
    }
}

static void put_values(struct spec_doc *doc)
{
    const struct spec_rule *rule = doc->rule;
    struct buf out = {0};
    buf_puts(&out, "");
    if (!rule->unbuilt) {
        put_kind(&out, doc);
    }
    if (rule->later) {
        buf_puts(&out, out.len ? " (not built: " : "(not built: ");
        put_words(&out, rule->later);
        buf_puts(&out, ")");
    }
    if (rule->kind == SPEC_UNBUILT) {
        buf_puts(&out, "not built");
    } else if (rule->unbuilt) {
        buf_printf(&out, "not built: only %s", doc->fallback);
    }
    snprintf(doc->values, sizeof doc->values, "%s", out.data);
    buf_free(&out);
}

/* ---- the walk ------------------------------------------------------------------------------- */

struct docs {
    struct spec_doc *all; /* owned */
    size_t num;
};

static void add_message(struct docs *docs, const ProtobufCMessageDescriptor *descriptor,
                        const char *path, int depth, bool unbuilt);

static const char *find_text(const ProtobufCFieldDescriptor *field, const char *name)
{
    const char *text = docs_find(name);
    if (!text && field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessageDescriptor *inner = field->descriptor;
        text = docs_find(inner->short_name);
    }
    return text ? text : "";
}

static void add_field(struct docs *docs, const ProtobufCMessageDescriptor *descriptor,
                      const ProtobufCFieldDescriptor *field, const char *path, int depth,
                      bool unbuilt)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", descriptor->short_name, field->name);
    const struct spec_rule *rule = spec_rules_find(name);
    ASSERT(rule);
    struct spec_doc doc = {.depth = depth,
                           .section = field->type == PROTOBUF_C_TYPE_MESSAGE,
                           .unbuilt = unbuilt || rule->unbuilt,
                           .field = field,
                           .rule = rule,
                           .text = find_text(field, name)};
    snprintf(doc.path, sizeof doc.path, "%s%s%s", path, *path ? "." : "", field->name);
    put_type(&doc);
    put_default(&doc);
    put_values(&doc);
    struct spec_doc *grown = realloc(docs->all, (docs->num + 1) * sizeof doc);
    ASSERT(grown);
    docs->all = grown;
    docs->all[docs->num++] = doc;
    if (doc.section) {
        add_message(docs, field->descriptor, doc.path, depth + 1, doc.unbuilt);
    }
}

static void add_message(struct docs *docs, const ProtobufCMessageDescriptor *descriptor,
                        const char *path, int depth, bool unbuilt)
{
    if (field_is_choice(descriptor)) {
        add_message(docs, field_choice_member(descriptor, true)->descriptor, path, depth, unbuilt);
        return;
    }
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        add_field(docs, descriptor, &descriptor->fields[i], path, depth, unbuilt);
    }
}

size_t spec_docs_all(struct spec_doc **out)
{
    struct docs docs = {0};
    add_message(&docs, &job_spec__descriptor, "", 0, false);
    *out = docs.all;
    return docs.num;
}
