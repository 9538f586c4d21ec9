/* A file of training data in a folder of its own, and a loader of it. One a test program. */
#ifndef TANDEM_TESTS_UNIT_DATA_CASE_H
#define TANDEM_TESTS_UNIT_DATA_CASE_H

#include "runtime/data/loader.h"

/* Makes the folder; the file's path in it, which isn't written yet. */
char *data_case_make(const char *name);
/* A group's teardown. */
int data_case_remove(void **state);
void data_case_write(const void *data, size_t len);
void data_case_write_text(const char *text);

/* One rank that reads the file in its order, a sample at a time. */
struct loader_options data_case_options(const char *format, int64_t seq_len, int64_t global,
                                        int64_t vocab);
struct loader *data_case_open(const struct loader_options *o);
void data_case_open_fails(const struct loader_options *o, enum error_code code, const char *words);

#endif
