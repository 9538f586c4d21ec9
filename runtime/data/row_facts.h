/* What a file of packed rows holds: every row is parsed, of a very large file the first ones. */
#ifndef TANDEM_RUNTIME_DATA_ROW_FACTS_H
#define TANDEM_RUNTIME_DATA_ROW_FACTS_H

#include "base/error.h"
#include "base/roots.h"
#include "proto/names.h"

/* Bytes, or time, after which rows are only counted: well within a probe's deadline. */
#define ROW_FACTS_SCAN_BYTES ((int64_t)1 << 30)
#define ROW_FACTS_SCAN_MS 20000

/* Fills all of facts but path and format. */
int row_facts(const struct roots *roots, const char *path, DataFacts *facts, struct error *err);

#endif
