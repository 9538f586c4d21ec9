/* Names that are nearly right. */
#include "proto/text_near.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "proto/field.h"
#include "proto/text.h"

#define MAX_FIELDS 256

#define WORD_MAX 48

/* Lower case, dashes as underscores. */
static size_t fold(char out[WORD_MAX], const char *word)
{
    size_t len = strnlen(word, WORD_MAX - 1);
    for (size_t i = 0; i < len; i++) {
        char c = word[i];
        out[i] = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    out[len] = 0;
    return len;
}

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions, replacements and swaps of neighbours between two words.
 * Source: Damerau-Levenshtein, optimal string alignment. */
static int distance(const char *a, size_t num_a, const char *b, size_t num_b)
{
    int rows[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= num_a; i++) {
        for (size_t j = 0; j <= num_b; j++) {
            if (i == 0 || j == 0) {
                rows[i][j] = (int)(i + j);
                continue;
            }
            int differs = a[i - 1] != b[j - 1];
            int least = min3(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + differs);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                rows[i - 2][j - 2] + 1 < least) {
                least = rows[i - 2][j - 2] + 1;
            }
            rows[i][j] = least;
        }
    }
    return rows[num_a][num_b];
}

const char *text_nearest(const char *word, const char *const *names)
{
    char folded[WORD_MAX], name[WORD_MAX];
    size_t len = fold(folded, word);
    const char *best = NULL;
    int best_distance = 1 + (int)len / 5;
    if (len < 2) {
        return NULL;
    }
    for (size_t i = 0; names[i]; i++) {
        size_t name_len = fold(name, names[i]);
        int d = distance(folded, len, name, name_len);
        /* The beginning of a name (micro_batch for micro_batch_size) is as near as one slip. */
        if (len >= 3 && name_len > len && strncmp(folded, name, len) == 0 && d > 1) {
            d = 1;
        }
        if (d < best_distance || (d == best_distance && !best)) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

/* ---- unknown fields -------------------------------------------------------------------------- */

/* Looks for the field in other messages below descriptor; its dotted path goes into path. */
static bool find_elsewhere(const ProtobufCMessageDescriptor *descriptor, const char *key,
                           size_t len, int depth, struct buf *path)
{
    const ProtobufCFieldDescriptor *found = field_find(descriptor, key, len);
    bool choice = field_is_choice(descriptor);
    if (found && !choice) {
        buf_puts(path, found->name);
        return true;
    }
    for (unsigned i = 0; depth < 6 && i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED) {
            continue;
        }
        size_t before = path->len;
        if (!choice) {
            buf_printf(path, "%s.", field->name);
        }
        if (find_elsewhere(field->descriptor, key, len, depth + 1, path)) {
            return true;
        }
        path->len = before;
    }
    return false;
}

void text_near_unknown(struct buf *out, const ProtobufCMessageDescriptor *root,
                       const ProtobufCMessageDescriptor *descriptor, const char *key, size_t len)
{
    const char *names[MAX_FIELDS + 1] = {0};
    ASSERT(descriptor->n_fields <= MAX_FIELDS);
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        names[i] = descriptor->fields[i].name;
    }
    struct buf elsewhere = {0};
    char word[64] = {0};
    if (len < sizeof word) {
        memcpy(word, key, len);
    }
    const char *near = text_nearest(word, names);
    if (near) {
        buf_printf(out, "unknown field; did you mean %s?", near);
    } else if (*word && find_elsewhere(root, word, strlen(word), 0, &elsewhere)) {
        buf_printf(out, "unknown field; did you mean %s?", elsewhere.data);
    } else {
        buf_puts(out, "unknown field; known here:");
        for (unsigned i = 0; i < descriptor->n_fields; i++) {
            buf_printf(out, "%s %s", i ? "," : "", names[i]);
        }
    }
    buf_free(&elsewhere);
}
