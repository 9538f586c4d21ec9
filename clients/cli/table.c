#include "clients/cli/table.h"

#include <stdlib.h>
#include <string.h>

#include "clients/cli/human.h"
#include "clients/cli/terminal.h"

/* Blanks between columns; what is left of a text that is cut. */
enum { GAP = 2, TEXT_MIN = 8 };

struct cell {
    char *human, *raw; /* owned; raw NULL = as human */
    const char *colour;
};

struct table {
    const char *const *names;
    const char *const *drop; /* may be NULL */
    size_t num_columns;
    struct cell *cells; /* owned */
    size_t num_cells, cap_cells;
};

struct table *table_new(const char *const *names)
{
    struct table *t = calloc(1, sizeof *t);
    ASSERT(t);
    t->names = names;
    while (names[t->num_columns]) {
        t->num_columns++;
    }
    ASSERT(t->num_columns > 0 && t->num_columns <= TABLE_COLUMNS_MAX);
    return t;
}

void table_free(struct table *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; i < t->num_cells; i++) {
        free(t->cells[i].human);
        free(t->cells[i].raw);
    }
    free(t->cells);
    free(t);
}

void table_cell(struct table *t, const char *human, const char *raw, const char *colour)
{
    if (t->num_cells == t->cap_cells) {
        t->cap_cells = t->cap_cells ? 2 * t->cap_cells : 64;
        t->cells = realloc(t->cells, t->cap_cells * sizeof *t->cells);
        ASSERT(t->cells);
    }
    t->cells[t->num_cells++] =
        (struct cell){strdup(human ? human : ""), raw ? strdup(raw) : NULL, colour};
}

void table_drop_first(struct table *t, const char *const *names)
{
    t->drop = names;
}

size_t table_rows(const struct table *t)
{
    return t->num_cells / t->num_columns;
}

/* One csv cell, quoted if it has to be. */
static void table_csv_cell(struct buf *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        buf_puts(out, text);
        return;
    }
    buf_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"') {
            buf_putc(out, '"');
        }
        buf_putc(out, *text);
    }
    buf_putc(out, '"');
}

static const char *plain_name(const struct table *t, size_t column)
{
    char mark = t->names[column][0];
    return t->names[column] + (mark == '>' || mark == '~');
}

static void write_csv(const struct table *t, struct buf *out)
{
    for (size_t i = 0; i < t->num_columns; i++) {
        buf_puts(out, i ? "," : "");
        table_csv_cell(out, plain_name(t, i));
    }
    buf_putc(out, '\n');
    for (size_t i = 0; i < t->num_cells; i++) {
        const struct cell *c = &t->cells[i];
        table_csv_cell(out, c->raw ? c->raw : c->human);
        buf_putc(out, (i + 1) % t->num_columns ? ',' : '\n');
    }
}

static void pad(struct buf *out, size_t n)
{
    while (n-- > 0) {
        buf_putc(out, ' ');
    }
}

static void write_aligned(const struct table *t, struct buf *out, size_t column, size_t width,
                          const char *text, const char *colour)
{
    size_t shown = human_width(text);
    size_t blank = width > shown ? width - shown : 0;
    bool right = t->names[column][0] == '>';
    if (right) {
        pad(out, blank);
    }
    if (colour && text[0]) {
        buf_printf(out, "%s%s\033[0m", colour, text);
    } else {
        buf_puts(out, text);
    }
    pad(out, (right ? 0 : blank) + GAP);
}

static void end_line(struct buf *out)
{
    while (out->len && out->data[out->len - 1] == ' ') {
        out->data[--out->len] = 0;
    }
    buf_putc(out, '\n');
}

/* A column that is empty in every row is left out. */
static void measure(const struct table *t, size_t width[TABLE_COLUMNS_MAX])
{
    for (size_t c = 0; c < t->num_columns; c++) {
        width[c] = 0;
        for (size_t i = c; i < t->num_cells; i += t->num_columns) {
            size_t w = human_width(t->cells[i].human);
            width[c] = w > width[c] ? w : width[c];
        }
        size_t head = human_width(plain_name(t, c));
        if (width[c] && head > width[c]) {
            width[c] = head;
        }
    }
}

/* What the columns take with their gaps, text cut as far as it may be. */
static size_t least(const struct table *t, const size_t *width)
{
    size_t sum = 0;
    for (size_t c = 0; c < t->num_columns; c++) {
        bool flexible = t->names[c][0] == '~' && width[c] > TEXT_MIN;
        sum += width[c] ? (flexible ? TEXT_MIN : width[c]) + GAP : 0;
    }
    return sum > GAP ? sum - GAP : 0;
}

static void drop_columns(const struct table *t, size_t *width, size_t limit)
{
    for (const char *const *d = t->drop; d && *d && least(t, width) > limit; d++) {
        for (size_t c = 0; c < t->num_columns; c++) {
            if (strcmp(plain_name(t, c), *d) == 0) {
                width[c] = 0;
            }
        }
    }
}

/* Takes from the widest text, a character at a time, until the line fits. */
static void cut_columns(const struct table *t, size_t *width, size_t limit)
{
    for (;;) {
        size_t sum = 0, widest = t->num_columns;
        for (size_t c = 0; c < t->num_columns; c++) {
            sum += width[c] ? width[c] + GAP : 0;
            if (t->names[c][0] == '~' && width[c] > TEXT_MIN &&
                (widest == t->num_columns || width[c] > width[widest])) {
                widest = c;
            }
        }
        if (sum <= limit + GAP || widest == t->num_columns) {
            return;
        }
        width[widest]--;
    }
}

/* Bytes of the first n characters. */
static size_t bytes_of(const char *text, size_t n)
{
    size_t i = 0;
    for (; text[i] && n; n--) {
        i++;
        while (((unsigned char)text[i] & 0xC0) == 0x80) {
            i++;
        }
    }
    return i;
}

static void write_cell(const struct table *t, struct buf *out, size_t column, size_t width,
                       const char *text, const char *colour, bool utf8)
{
    if (human_width(text) <= width || t->names[column][0] != '~') {
        write_aligned(t, out, column, width, text, colour);
        return;
    }
    const char *mark = utf8 ? "\xE2\x80\xA6" : "..";
    struct buf cut = {0};
    buf_append(&cut, text, bytes_of(text, width - human_width(mark)));
    buf_puts(&cut, mark);
    write_aligned(t, out, column, width, cut.data, colour);
    buf_free(&cut);
}

static void write_head(const struct table *t, struct buf *out, const size_t *width, bool colour)
{
    for (size_t c = 0; c < t->num_columns; c++) {
        char name[64];
        size_t n = 0;
        for (const char *p = plain_name(t, c); *p && n + 1 < sizeof name; p++) {
            name[n++] = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        }
        name[n] = 0;
        if (width[c]) {
            write_aligned(t, out, c, width[c], name, colour ? "\033[2m" : NULL);
        }
    }
    end_line(out);
}

void table_write(const struct table *t, struct buf *out, const struct table_look *look)
{
    size_t width[TABLE_COLUMNS_MAX];
    if (look->csv) {
        write_csv(t, out);
        return;
    }
    measure(t, width);
    if (look->width) {
        drop_columns(t, width, look->width);
        cut_columns(t, width, look->width);
    }
    write_head(t, out, width, look->colour);
    for (size_t i = 0; i < t->num_cells; i++) {
        size_t c = i % t->num_columns;
        if (width[c]) {
            write_cell(t, out, c, width[c], t->cells[i].human,
                       look->colour ? t->cells[i].colour : NULL, look->utf8);
        }
        if (c + 1 == t->num_columns) {
            end_line(out);
        }
    }
}

void table_print(const struct table *t, const struct cli *cli)
{
    struct buf b = {0};
    const struct table_look look = {.csv = cli->format == FORMAT_CSV,
                                    .colour = cli->colour,
                                    .utf8 = cli->utf8,
                                    .width = cli->out_tty ? (size_t)terminal_width() : 0};
    table_write(t, &b, &look);
    fputs(b.data, stdout);
    buf_free(&b);
}
