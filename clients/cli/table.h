/* Rows and columns, as aligned text or as csv. A cell has a form for people and a raw one. */
#ifndef TANDEM_CLIENTS_CLI_TABLE_H
#define TANDEM_CLIENTS_CLI_TABLE_H

#include "base/buf.h"
#include "clients/cli/cli.h"

enum { TABLE_COLUMNS_MAX = 24 };

struct table;

/* names: lower case, ended by NULL, kept by pointer. A name that begins with '>' is aligned to
 * the right. */
struct table *table_new(const char *const *names);
void table_free(struct table *t);
/* The next cell of the row; after the last column a new row begins. raw NULL: as human. colour:
 * an escape sequence, or NULL. */
void table_cell(struct table *t, const char *human, const char *raw, const char *colour);
size_t table_rows(const struct table *t);
/* csv: names and raw cells, quoted where needed. Else aligned text, without trailing blanks. */
void table_write(const struct table *t, struct buf *out, bool csv, bool colour);
void table_print(const struct table *t, const struct cli *cli);
/* One csv cell, quoted if it has to be. */
void table_csv_cell(struct buf *out, const char *text);

#endif
