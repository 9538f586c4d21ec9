#include "bad_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "golden.h"
#include "runtime/ckpt/safetensors.h"

/* A token that is an input of rows begin <= i < end, and of none before; targets alone don't count.
 */
static int64_t new_token(const uint16_t *tokens, int64_t begin, int64_t end, int64_t row_tokens)
{
    for (int64_t i = begin * row_tokens; i < end * row_tokens; i++) {
        bool seen = i % row_tokens == row_tokens - 1;
        for (int64_t j = 0; j < begin * row_tokens && !seen; j++)
            seen = tokens[j] == tokens[i] && j % row_tokens != row_tokens - 1;
        if (!seen)
            return tokens[i];
    }
    return -1;
}

static void write_model(const char *dir, int64_t token)
{
    char path[512], *data;
    size_t len;
    struct error err = {0};
    struct st_header header;
    const double nan_number = -NAN; /* the sign that a processor's own has */
    const float bad = (float)nan_number;
    assert_int_equal(fs_mkdirs(dir, 0700, &err), 0);
    fs_join(path, sizeof(path), dir, "config.json");
    assert_int_equal(
        fs_read_file(golden_path(&golden_tiny, "config.json"), 1 << 20, &data, &len, &err), 0);
    assert_int_equal(fs_write_atomic(path, data, len, 0600, &err), 0);
    free(data);
    fs_join(path, sizeof(path), dir, "model.safetensors");
    assert_int_equal(
        fs_read_file(golden_path(&golden_tiny, "model.safetensors"), 1 << 20, &data, &len, &err),
        0);
    assert_int_equal(st_header_parse("model", data, len, len, &header, &err), 0);
    const struct st_tensor *embed = st_header_find(&header, "model.embed_tokens.weight");
    char *row = data + header.data_offset + embed->begin +
                (size_t)(token * embed->shape[1]) * sizeof(float);
    memcpy(row, &bad, sizeof(bad));
    assert_int_equal(fs_write_atomic(path, data, len, 0600, &err), 0);
    st_header_free(&header);
    free(data);
}

void bad_model_write(const char *dir, int64_t step)
{
    char *tokens;
    size_t len;
    int64_t batch = golden_tiny.batch, first = (step - 1) * batch + batch / 2;
    assert_int_equal(
        fs_read_file(golden_path(&golden_tiny, "train.bin"), 1 << 20, &tokens, &len, NULL), 0);
    int64_t token = new_token((const uint16_t *)(const void *)tokens, first, first + batch / 2,
                              golden_tiny.seq_len + 1);
    free(tokens);
    assert_true(token >= 0);
    write_model(dir, token);
}
