#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <jansson.h>

const struct golden golden_tiny = {"llama-tiny", 4, 32};
const struct golden golden_tied = {"llama-tied", 2, 64};
const struct golden golden_qwen2 = {"qwen2-tiny", 4, 40};
const struct golden golden_qwen3 = {"qwen3-tiny", 4, 32};
const struct golden golden_gpt2 = {"gpt2-tiny", 4, 32};
const struct golden golden_deep = {"llama-deep", 16, 64};
const struct golden golden_deep_tied = {"llama-deep-tied", 12, 48};
const struct golden golden_gpt2_deep = {"gpt2-deep", 8, 32};
const struct golden golden_packed = {"sft-packed", 2, 48};
const struct golden golden_packed_gpt2 = {"sft-packed-gpt2", 2, 48};

const char *golden_path(const struct golden *g, const char *file)
{
    static _Thread_local char path[512];
    snprintf(path, sizeof(path), "%s/tests/golden/%s/%s", TANDEM_SOURCE_DIR, g->name, file);
    return path;
}

void golden_curve(const struct golden *g, const char *key, double out[GOLDEN_STEPS])
{
    json_error_t error;
    json_t *root = json_load_file(golden_path(g, "train.json"), 0, &error);
    if (root == NULL)
        fail_msg("%s: %s", golden_path(g, "train.json"), error.text);
    json_t *list = json_object_get(root, key);
    assert_int_equal(json_array_size(list), GOLDEN_STEPS);
    for (size_t i = 0; i < GOLDEN_STEPS; i++)
        out[i] = json_number_value(json_array_get(list, i));
    json_decref(root);
}
