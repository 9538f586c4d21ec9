#include "data_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

static char dir[64], path[128];

char *data_case_make(const char *name)
{
    snprintf(dir, sizeof dir, "/tmp/tandem-data-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

int data_case_remove(void **state)
{
    (void)state;
    return fs_remove_tree(dir, NULL);
}

void data_case_write(const void *data, size_t len)
{
    struct error err = {0};
    if (fs_write_atomic(path, data, len, 0600, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

void data_case_write_text(const char *text)
{
    data_case_write(text, strlen(text));
}

struct loader_options data_case_options(const char *format, int64_t seq_len, int64_t global,
                                        int64_t vocab)
{
    return (struct loader_options){.path = path,
                                   .format = format,
                                   .window = "T",
                                   .tokenizer = "bytes",
                                   .order = "sequential",
                                   .seed = 7,
                                   .seq_len = seq_len,
                                   .global_batch_size = global,
                                   .vocab_size = vocab,
                                   .data_rank = 0,
                                   .data_size = 1,
                                   .micro_batch_size = 1};
}

struct loader *data_case_open(const struct loader_options *o)
{
    struct loader *l;
    struct error err = {0};
    if (loader_open(&l, o, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return l;
}

void data_case_open_fails(const struct loader_options *o, enum error_code code, const char *words)
{
    struct loader *l;
    struct error err = {0};
    if (loader_open(&l, o, &err) == 0) {
        fail_msg("was opened, though: %s", words);
    }
    if (err.code != code || !strstr(err.text, words)) {
        fail_msg("says \"%s\" (%d), wanted \"%s\"", err.text, err.code, words);
    }
}
