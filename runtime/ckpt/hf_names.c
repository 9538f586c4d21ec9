#include "runtime/ckpt/hf_names.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "transformer."
#define HEAD "lm_head.weight"

static bool is_bare(const struct st_folder *f)
{
    const struct st_file *file;
    return st_folder_find(f, "wte.weight", &file) && !st_folder_find(f, PREFIX "wte.weight", &file);
}

const struct st_tensor *hf_find(const struct st_folder *f, const char *param,
                                const struct st_file **file)
{
    size_t n = sizeof PREFIX - 1;
    bool cut = strncmp(param, PREFIX, n) == 0 && is_bare(f);
    return st_folder_find(f, cut ? param + n : param, file);
}

bool hf_table_name(const struct st_folder *f, const char *tensor, char *out, size_t size)
{
    bool add = strcmp(tensor, HEAD) != 0 && is_bare(f);
    int n = snprintf(out, size, "%s%s", add ? PREFIX : "", tensor);
    return n >= 0 && (size_t)n < size;
}

bool hf_passed_over(const char *tensor, bool tied)
{
    static const char *const tails[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    size_t n = strlen(tensor);
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        size_t m = strlen(tails[i]);
        if (n >= m && strcmp(tensor + n - m, tails[i]) == 0) {
            return true;
        }
    }
    return tied && strcmp(tensor, HEAD) == 0;
}
