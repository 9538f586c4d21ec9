/* Job files as text, for tests of what they may say. */
#ifndef TANDEM_TESTS_UNIT_SPEC_CASE_H
#define TANDEM_TESTS_UNIT_SPEC_CASE_H

#include "proto/names.h"

/* The least that one must say. */
#define SPEC_CASE_LEAST                                                                            \
    "name: a\n"                                                                                    \
    "model: {path: /m}\n"                                                                          \
    "data: {train: [{path: /d, format: u16}]}\n"                                                   \
    "training: {steps: 10, seq_len: 8, global_batch_size: 4}\n"

/* Not checked yet. */
JobSpec *spec_case_parse(const char *text);
/* Two messages of one type: do they say the same? */
void spec_case_same(const void *a, const void *b);

#endif
