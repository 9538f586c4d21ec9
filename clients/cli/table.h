/* Rows and columns, as aligned text or as csv. A cell has a form for people and a raw one. */
#ifndef TANDEM_CLIENTS_CLI_TABLE_H
#define TANDEM_CLIENTS_CLI_TABLE_H

#include "base/buf.h"
#include "clients/cli/cli.h"

enum { TABLE_COLUMNS_MAX = 24 };

struct table;

/* names: lower case, ended by NULL, kept by pointer. A name that begins with '>' is aligned to
 * the right; the text of one that begins with '~' may be cut where a terminal is too narrow. */
struct table *table_new(const char *const *names);
/* Columns (plain names, ended by NULL, kept by pointer) that are left out on a terminal that is too
 * narrow even for cut text, the first of them first. */
void table_drop_first(struct table *t, const char *const *names);
void table_free(struct table *t);
/* The next cell of the row; after the last column a new row begins. raw NULL: as human. colour:
 * an escape sequence, or NULL. */
void table_cell(struct table *t, const char *human, const char *raw, const char *colour);
size_t table_rows(const struct table *t);
struct table_look {
    bool csv;     /* names and raw cells, quoted where needed; else aligned text */
    bool colour;  /* not for csv */
    bool utf8;    /* cut text ends with an ellipsis, else with dots */
    size_t width; /* lines of aligned text are no longer, as far as cutting goes; 0 = no limit */
};
/* Without trailing blanks. */
void table_write(const struct table *t, struct buf *out, const struct table_look *look);
/* To stdout; where that is a terminal, no wider than it. */
void table_print(const struct table *t, const struct cli *cli);

#endif
