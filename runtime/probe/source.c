/* A data file: how many tokens, and is any of them too large? */
#include "runtime/probe/probe.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/formats.h"
#include "runtime/data/row_facts.h"

/* Enough to find a file of the wrong type or tokenizer; the loader checks every token it reads. */
#define SCAN_TOKENS_MAX ((int64_t)8 << 20)
#define SCAN_CHUNK 65536
/* Of a text: enough for some lines, or for the first keys of a long one. */
#define LOOK_BYTES 4096

static int scan(const struct token_file *file, int64_t *max_token, struct error *err)
{
    int64_t num = formats_num_tokens(file);
    num = num < SCAN_TOKENS_MAX ? num : SCAN_TOKENS_MAX;
    int32_t *chunk = malloc(SCAN_CHUNK * sizeof *chunk);
    ASSERT(chunk);
    int rc = 0;
    for (int64_t at = 0; at < num && rc == 0; at += SCAN_CHUNK) {
        int64_t n = num - at < SCAN_CHUNK ? num - at : SCAN_CHUNK;
        rc = formats_read(file, at, n, 0, chunk, err);
        for (int64_t i = 0; i < n && rc == 0; i++) {
            *max_token = chunk[i] > *max_token ? chunk[i] : *max_token;
        }
    }
    free(chunk);
    return rc;
}

/* Lines that are objects, and the key that rows of tokens have: in the first bytes of a text. NULL:
 * neither. */
static const char *looks_like(const char *text)
{
    int lines = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *first = line + strspn(line, " \t\r");
        if (*first == '\n' || *first == 0) {
            continue;
        }
        const char *next = first + 1 + strspn(first + 1, " \t");
        if (*first == '{' && *next == 0 && lines > 0) {
            break; /* cut behind its bracket */
        }
        if (*first != '{' || (*next != '"' && *next != '}')) {
            return NULL;
        }
        lines++;
    }
    if (lines == 0) {
        return NULL;
    }
    return strstr(text, "\"input_ids\"") ? "tokenized-jsonl" : "jsonl";
}

static int look(const struct token_file *file, DataFacts *facts, struct error *err)
{
    int64_t num = formats_num_tokens(file);
    int32_t ids[LOOK_BYTES];
    char text[LOOK_BYTES + 1];
    num = num < LOOK_BYTES ? num : LOOK_BYTES;
    if (num > 0 && formats_read(file, 0, num, 0, ids, err) != 0) {
        return -1;
    }
    for (int64_t i = 0; i < num; i++) {
        text[i] = ids[i] == 0 ? ' ' : (char)ids[i];
    }
    text[num] = 0;
    const char *word = looks_like(text);
    if (word) {
        facts->looks_like = strdup(word);
        ASSERT(facts->looks_like);
    }
    return 0;
}

static int fill(DataFacts *facts, const struct roots *roots, const SourceSpec *source,
                struct error *err)
{
    enum data_format format;
    struct token_file *file;
    const char *word = source->format ? source->format : "";
    facts->path = strdup(source->path);
    facts->format = strdup(word);
    ASSERT(facts->path && facts->format);
    if (strcmp(word, "tokenized-jsonl") == 0) {
        return row_facts(roots, source->path, facts, err) == 0 ? 0 : error_wrap(err, "data.train");
    }
    if (formats_parse(word, &format, err) != 0) {
        return error_wrap(err, "data.train: format");
    }
    if (formats_open(&file, roots, source->path, format, err) != 0) {
        return error_wrap(err, "data.train");
    }
    facts->has_size_bytes = facts->has_num_tokens = facts->has_max_token = 1;
    facts->size_bytes = formats_size_bytes(file);
    facts->num_tokens = formats_num_tokens(file);
    int rc = scan(file, &facts->max_token, err);
    if (rc == 0 && format == DATA_TEXT) {
        rc = look(file, facts, err);
    }
    formats_close(file);
    return rc == 0 ? 0 : error_wrap(err, "data.train");
}

int probe_source(const struct roots *roots, const SourceSpec *source, DataFacts **out,
                 struct error *err)
{
    if (probe_check_path("data.train", source->path, err) != 0) {
        return -1;
    }
    DataFacts *facts = malloc(sizeof *facts);
    ASSERT(facts);
    data_facts__init(facts);
    if (fill(facts, roots, source, err) != 0) {
        data_facts__free_unpacked(facts, NULL);
        return -1;
    }
    *out = facts;
    return 0;
}
