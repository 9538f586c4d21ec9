/* What a file of packed rows holds: every row is parsed, of a very large file the first ones. */
#ifndef TANDEM_RUNTIME_PROBE_ROWS_H
#define TANDEM_RUNTIME_PROBE_ROWS_H

#include "base/error.h"
#include "base/roots.h"
#include "proto/names.h"

/* Bytes after which rows are only counted: seconds of parsing, well within a probe's deadline. */
#define ROWS_SCAN_BYTES ((int64_t)1 << 30)

/* Fills all of facts but path and format. */
int rows_probe(const struct roots *roots, const char *path, DataFacts *facts, struct error *err);

#endif
