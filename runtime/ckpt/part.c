#include "runtime/ckpt/part.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "runtime/ckpt/folder.h"

void part_file(const char *kind, int32_t writer, char out[PART_FILE_MAX])
{
    const char *suffix = strcmp(kind, PART_NOTES) == 0 ? "json" : "safetensors";
    int n = snprintf(out, PART_FILE_MAX, "%s-%d.%s", kind, writer, suffix);
    ASSERT(n > 0 && n < PART_FILE_MAX);
}

const char *part_precision(enum dtype precision)
{
    return precision == DTYPE_F64 ? "fp64" : precision == DTYPE_BF16 ? "bf16" : "fp32";
}

bool part_precision_parse(const char *word, enum dtype *out)
{
    static const enum dtype all[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(word, part_precision(all[i])) == 0) {
            *out = all[i];
            return true;
        }
    }
    return false;
}

int part_write(const char *dir, const struct ckpt_meta *meta, enum dtype precision, int32_t writer,
               int32_t num_writers, json_t *files, struct error *err)
{
    char name[PART_FILE_MAX], path[PATH_MAX];
    part_file(PART_NOTES, writer, name);
    if (folder_file(dir, name, path, sizeof path, err) != 0) {
        return -1;
    }
    json_t *notes = json_pack("{s:I, s:i, s:i, s:i, s:s, s:O}", "step", (json_int_t)meta->step,
                              "attempt", meta->attempt, "writer", writer, "writers", num_writers,
                              "precision", part_precision(precision), "files", files);
    char *text = notes ? json_dumps(notes, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(notes);
    if (!text) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    int rc = fs_write_atomic(path, text, strlen(text), 0644, err);
    free(text);
    return rc;
}

static int check_sizes(const char *dir, const json_t *files, struct error *err)
{
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)files, name, file)
    {
        char path[PATH_MAX];
        struct stat st;
        if (folder_file(dir, name, path, sizeof path, err) != 0) {
            return -1;
        }
        if (stat(path, &st) != 0) {
            return error_errno(err, errno, "%s", path);
        }
        json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
        if ((json_int_t)st.st_size != bytes) {
            return error_set(err, ERR_DATA_LOSS, "%s: has %lld bytes, %lld were written", path,
                             (long long)st.st_size, (long long)bytes);
        }
    }
    return 0;
}

static int check_notes(const char *path, const json_t *notes, const struct ckpt_meta *meta,
                       int32_t writer, int32_t num_writers, struct error *err)
{
    if (json_integer_value(json_object_get(notes, "step")) != meta->step ||
        json_integer_value(json_object_get(notes, "attempt")) != meta->attempt ||
        json_integer_value(json_object_get(notes, "writer")) != writer ||
        json_integer_value(json_object_get(notes, "writers")) != num_writers ||
        !json_is_object(json_object_get(notes, "files"))) {
        return error_set(err, ERR_DATA_LOSS, "%s: is of another save", path);
    }
    return 0;
}

int part_read(const char *dir, const struct ckpt_meta *meta, int32_t writer, int32_t num_writers,
              json_t **out, struct error *err)
{
    char name[PART_FILE_MAX], path[PATH_MAX];
    char *text;
    size_t len;
    part_file(PART_NOTES, writer, name);
    if (folder_file(dir, name, path, sizeof path, err) != 0 ||
        fs_read_file(path, FOLDER_JSON_MAX_BYTES, &text, &len, err) != 0) {
        return -1;
    }
    json_error_t fault;
    json_t *notes = json_loadb(text, len, JSON_REJECT_DUPLICATES, &fault);
    free(text);
    if (!notes) {
        return error_set(err, ERR_DATA_LOSS, "%s:%d: %s", path, fault.line, fault.text);
    }
    int rc = check_notes(path, notes, meta, writer, num_writers, err);
    if (rc == 0) {
        rc = check_sizes(dir, json_object_get(notes, "files"), err);
    }
    if (rc != 0) {
        json_decref(notes);
        return rc;
    }
    *out = notes;
    return 0;
}
