#include "runtime/ckpt/folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

void folder_format(const struct folder_name *name, char out[FOLDER_NAME_MAX])
{
    int n = snprintf(out, FOLDER_NAME_MAX, "step-%08lld-a%d%s", (long long)name->step,
                     name->attempt, name->temporary ? ".tmp" : "");
    ASSERT(n > 0 && n < FOLDER_NAME_MAX);
}

bool folder_parse(const char *text, struct folder_name *out)
{
    long long step;
    int attempt, used = 0;
    if (strlen(text) >= FOLDER_NAME_MAX ||
        sscanf(text, "step-%18lld-a%9d%n", &step, &attempt, &used) != 2 || step < 0 ||
        attempt < 0) {
        return false;
    }
    *out = (struct folder_name){step, attempt, strcmp(text + used, ".tmp") == 0};
    /* Only what we would write ourselves: no signs, spaces, missing zeros. */
    char again[FOLDER_NAME_MAX];
    folder_format(out, again);
    return strcmp(again, text) == 0;
}

int folder_file(const char *dir, const char *file, char *out, size_t size, struct error *err)
{
    return fs_join(out, size, dir, file)
               ? 0
               : error_set(err, ERR_INVALID_ARGUMENT, "%.200s: path is too long", dir);
}

int folder_path(const char *parent, const struct folder_name *name, char *out, size_t size,
                struct error *err)
{
    char text[FOLDER_NAME_MAX];
    folder_format(name, text);
    return folder_file(parent, text, out, size, err);
}

int folder_seal(const char *dir, const struct shard_digest *manifest, struct error *err)
{
    char path[PATH_MAX], text[SHARD_SHA256_TEXT + 1];
    if (folder_file(dir, FOLDER_COMPLETE, path, sizeof path, err) != 0) {
        return -1;
    }
    int n = snprintf(text, sizeof text, "%s\n", manifest->sha256);
    return fs_write_atomic(path, text, (size_t)n, 0644, err);
}

bool folder_complete(const char *dir)
{
    char path[PATH_MAX];
    return fs_join(path, sizeof path, dir, FOLDER_COMPLETE) && fs_exists(path) &&
           !folder_damaged(dir);
}

bool folder_damaged(const char *dir)
{
    char path[PATH_MAX];
    return fs_join(path, sizeof path, dir, FOLDER_DAMAGED) && fs_exists(path);
}
