/* Where in a YAML text a field stands, for what is found wrong with it after it was read. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "proto/text.h"

enum { MAX_DEPTH = 32 };

/* One open mapping or list. */
struct level {
    bool list, value_next;
    size_t idx;      /* of the next element */
    size_t path_len; /* of the path up to here */
};

struct walk {
    struct level levels[MAX_DEPTH];
    int depth;
    char path[512];
    size_t len;
    const char *wanted;
    size_t best_len;     /* of the part of wanted that was found */
    size_t line, column; /* from 1 */
};

static void append(struct walk *w, const char *name)
{
    size_t left = sizeof w->path - w->len;
    int n = snprintf(w->path + w->len, left, "%s%s", w->len ? "." : "", name);
    w->len += n > 0 && (size_t)n < left ? (size_t)n : 0;
    w->path[w->len] = 0;
}

/* The path of now is wanted's, or of what holds it: the longest wins. */
static void look(struct walk *w, const yaml_mark_t *mark)
{
    size_t n = w->len;
    bool fits = strncmp(w->path, w->wanted, n) == 0 && (w->wanted[n] == 0 || w->wanted[n] == '.');
    if (fits && n > w->best_len) {
        w->best_len = n;
        w->line = mark->line + 1;
        w->column = mark->column + 1;
    }
}

static void enter(struct walk *w, bool list)
{
    if (w->depth < MAX_DEPTH) {
        w->levels[w->depth] = (struct level){.list = list, .path_len = w->len};
    }
    w->depth++;
}

/* A value is through: the path goes back to what holds it. */
static void leave_value(struct walk *w)
{
    if (w->depth > 0 && w->depth <= MAX_DEPTH) {
        struct level *l = &w->levels[w->depth - 1];
        l->value_next = false;
        w->len = l->path_len;
        w->path[w->len] = 0;
    }
}

static void on_event(struct walk *w, const yaml_event_t *e)
{
    bool ends = e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT;
    bool opens = e->type == YAML_MAPPING_START_EVENT || e->type == YAML_SEQUENCE_START_EVENT;
    if (!ends && !opens && e->type != YAML_SCALAR_EVENT) {
        return;
    }
    if (ends) {
        w->depth--;
        leave_value(w);
        return;
    }
    struct level *l = w->depth > 0 && w->depth <= MAX_DEPTH ? &w->levels[w->depth - 1] : NULL;
    if (l && !l->list && !l->value_next && e->type == YAML_SCALAR_EVENT) {
        append(w, (const char *)e->data.scalar.value);
        look(w, &e->start_mark);
        l->value_next = true;
        return;
    }
    if (l && l->list) {
        char idx[24];
        snprintf(idx, sizeof idx, "%zu", l->idx++);
        append(w, idx);
        look(w, &e->start_mark);
    }
    if (opens) {
        enter(w, e->type == YAML_SEQUENCE_START_EVENT);
    } else {
        leave_value(w);
    }
}

bool text_place(const char *text, size_t len, const char *path, size_t *line, size_t *column)
{
    struct walk w = {.wanted = path};
    yaml_parser_t parser;
    yaml_event_t event;
    if (!yaml_parser_initialize(&parser)) {
        return false;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    bool more = true;
    while (more && yaml_parser_parse(&parser, &event)) {
        more = event.type != YAML_STREAM_END_EVENT;
        on_event(&w, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    *line = w.line;
    *column = w.column;
    return w.line > 0;
}

size_t text_locate(const char *text, size_t len, const char *path)
{
    size_t line, column;
    return text_place(text, len, path, &line, &column) ? line : 0;
}
