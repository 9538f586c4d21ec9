#include "runtime/ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/part.h"

/* The notes stand in the manifest now. */
static int remove_notes(const char *tmp, int32_t num_writers, struct error *err)
{
    for (int32_t w = 0; w < num_writers; w++) {
        char name[PART_FILE_MAX], path[PATH_MAX];
        part_file(PART_NOTES, w, name);
        if (folder_file(tmp, name, path, sizeof path, err) != 0) {
            return -1;
        }
        if (unlink(path) != 0 && errno != ENOENT) {
            return error_errno(err, errno, "remove %s", path);
        }
    }
    return 0;
}

static int64_t total_bytes(const struct manifest *m, const struct shard_digest *digest)
{
    int64_t sum = digest->size_bytes + SHARD_SHA256_TEXT;
    const char *name;
    json_t *file;
    json_object_foreach(m->files, name, file)
    {
        sum += json_integer_value(json_object_get(file, "bytes"));
    }
    return sum;
}

/* Each step is durable before the next, so COMPLETE is never there without all it stands for. */
static int publish(const char *parent, const char *tmp, const char *final,
                   const struct shard_digest *digest, struct error *err)
{
    if (fs_fsync_dir(tmp, err) != 0) {
        return -1;
    }
    if (rename(tmp, final) != 0) {
        return error_errno(err, errno, "rename %s to %s", tmp, final);
    }
    if (fs_fsync_dir(parent, err) != 0) {
        return -1;
    }
    return folder_seal(final, digest, err);
}

int ckpt_commit(const char *parent, const struct ckpt_meta *meta, int32_t num_writers, char *dir,
                size_t dir_size, int64_t *size_bytes, struct error *err)
{
    struct folder_name name = {meta->step, meta->attempt, true};
    char tmp[PATH_MAX], final[PATH_MAX];
    if (folder_path(parent, &name, tmp, sizeof tmp, err) != 0) {
        return -1;
    }
    name.temporary = false;
    if (folder_path(parent, &name, final, sizeof final, err) != 0) {
        return -1;
    }
    if (strlen(final) >= dir_size) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", final);
    }
    if (fs_exists(final)) {
        return error_set(err, ERR_ALREADY_EXISTS, "%s: is there already", final);
    }
    struct manifest m;
    struct shard_digest digest;
    if (manifest_build(tmp, meta, num_writers, &m, err) != 0) {
        return error_wrap(err, "commit step %lld", (long long)meta->step);
    }
    int rc = manifest_write(tmp, &m, &digest, err);
    if (rc == 0) {
        rc = remove_notes(tmp, num_writers, err);
    }
    if (rc == 0) {
        rc = publish(parent, tmp, final, &digest, err);
    }
    if (rc == 0) {
        *size_bytes = total_bytes(&m, &digest);
        snprintf(dir, dir_size, "%s", final);
    }
    manifest_free(&m);
    return rc == 0 ? 0 : error_wrap(err, "commit step %lld", (long long)meta->step);
}

int ckpt_abandon(const char *parent, const struct ckpt_meta *meta, struct error *err)
{
    struct folder_name name = {meta->step, meta->attempt, true};
    char tmp[PATH_MAX], final[PATH_MAX];
    if (folder_path(parent, &name, tmp, sizeof tmp, err) != 0) {
        return -1;
    }
    name.temporary = false;
    if (folder_path(parent, &name, final, sizeof final, err) != 0 ||
        fs_remove_tree(tmp, err) != 0) {
        return -1;
    }
    return folder_complete(final) ? 0 : fs_remove_tree(final, err);
}
