/* A file of rows, one a line: where each begins, found by one look for newlines at the open. Line
 * N is row N - 1; white space behind the last row is none.
 *
 * At most `max_marks` places are kept, 8 bytes each: of a larger file every second, fourth, ...
 * row, and what lies between is passed over when a row is read. Rows are read with pread in chunks;
 * the file must not change while it is open, and a read says so if it has. One thread. */
#ifndef TANDEM_RUNTIME_DATA_ROW_FILE_H
#define TANDEM_RUNTIME_DATA_ROW_FILE_H

#include <stdint.h>

#include "base/error.h"
#include "base/roots.h"
#include "runtime/data/packed_row.h"

#define ROW_FILE_MAX_MARKS ((int64_t)1 << 22)

struct row_file;

struct row_file_options {
    const char *path;
    const struct roots *roots; /* where it may lie; NULL = anywhere; borrowed for the open */
    int64_t max_marks;         /* 0 = ROW_FILE_MAX_MARKS */
};

/* A file without rows is refused. */
int row_file_open(struct row_file **out, const struct row_file_options *options, struct error *err);
void row_file_close(struct row_file *f);
const char *row_file_path(const struct row_file *f);
int64_t row_file_num_rows(const struct row_file *f);
int64_t row_file_size_bytes(const struct row_file *f);
/* Behind the row that was read last: how far a pass over all rows has come. */
int64_t row_file_at_bytes(const struct row_file *f);

/* Parses row idx. Errors name file and line. */
int row_file_read(struct row_file *f, int64_t idx, const struct packed_limits *limits,
                  struct packed_row *out, struct error *err);

#endif
