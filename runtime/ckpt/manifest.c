#include "runtime/ckpt/manifest.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/part.h"

#define FORMAT "tandem-checkpoint"
#define VERSION 1

static int out_of_memory(const char *dir, struct error *err)
{
    return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory for the manifest", dir);
}

static int add_file(const char *dir, struct manifest *m, const char *name, const json_t *file,
                    struct error *err)
{
    json_t *line = json_pack("{s:O, s:O}", "bytes", json_object_get(file, "bytes"), "sha256",
                             json_object_get(file, "sha256"));
    if (!line || json_object_set_new(m->files, name, line) != 0) {
        return out_of_memory(dir, err);
    }
    size_t i;
    json_t *tensor;
    json_array_foreach((json_t *)json_object_get(file, "tensors"), i, tensor)
    {
        const char *text = json_string_value(tensor);
        if (!text || json_object_get(m->tensors, text)) {
            return error_set(err, ERR_DATA_LOSS, "%s/%s: tensor \"%s\" was written twice", dir,
                             name, text ? text : "?");
        }
        if (json_object_set_new(m->tensors, text, json_string(name)) != 0) {
            return out_of_memory(dir, err);
        }
    }
    return 0;
}

static int add_part(const char *dir, struct manifest *m, json_t *notes, struct error *err)
{
    json_t *precision = json_object_get(notes, "precision");
    json_t *before = json_object_get(m->root, "precision");
    if (before && !json_equal(precision, before)) {
        return error_set(err, ERR_DATA_LOSS, "%s: writers disagree on the precision", dir);
    }
    if (!before && json_object_set(m->root, "precision", precision) != 0) {
        return out_of_memory(dir, err);
    }
    const char *name;
    json_t *file;
    json_object_foreach(json_object_get(notes, "files"), name, file)
    {
        if (add_file(dir, m, name, file, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int manifest_build(const char *dir, const struct ckpt_meta *meta, int32_t num_writers,
                   struct manifest *out, struct error *err)
{
    struct manifest m = {.meta = *meta};
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)meta->seed);
    m.root = json_pack("{s:s, s:i, s:I, s:I, s:i, s:I, s:s, s:i, s:{}, s:{}}", "format", FORMAT,
                       "version", VERSION, "step", (json_int_t)meta->step, "optimizer_step",
                       (json_int_t)meta->step, "attempt", meta->attempt, "consumed_samples",
                       (json_int_t)meta->consumed_samples, "seed", seed, "writers", num_writers,
                       "files", "tensors");
    if (!m.root) {
        return out_of_memory(dir, err);
    }
    /* JSON has no word for a loss that isn't finite. */
    if (isfinite(meta->loss)) {
        json_object_set_new(m.root, "loss", json_real(meta->loss));
    }
    m.files = json_object_get(m.root, "files");
    m.tensors = json_object_get(m.root, "tensors");
    for (int32_t w = 0; w < num_writers; w++) {
        json_t *notes;
        int rc = part_read(dir, meta, w, num_writers, &notes, err);
        if (rc == 0) {
            rc = add_part(dir, &m, notes, err);
            json_decref(notes);
        }
        if (rc != 0) {
            manifest_free(&m);
            return rc;
        }
    }
    *out = m;
    return 0;
}

int manifest_write(const char *dir, const struct manifest *m, struct shard_digest *digest,
                   struct error *err)
{
    char path[PATH_MAX];
    if (folder_file(dir, FOLDER_MANIFEST, path, sizeof path, err) != 0) {
        return -1;
    }
    char *text = json_dumps(m->root, JSON_SORT_KEYS | JSON_INDENT(1));
    if (!text) {
        return out_of_memory(dir, err);
    }
    size_t len = strlen(text);
    int rc = shard_digest_bytes(text, len, digest, err);
    if (rc == 0) {
        rc = fs_write_atomic(path, text, len, 0644, err);
    }
    free(text);
    return rc;
}

/* Takes the fields apart; false where one is missing or of another kind. */
static bool take_fields(struct manifest *m)
{
    const char *format = NULL, *seed = NULL, *precision = NULL;
    int version = 0, attempt = 0;
    json_int_t step = 0, samples = 0;
    double loss = NAN;
    if (json_unpack(m->root, "{s:s, s:i, s:I, s:i, s:I, s:s, s:s, s?F, s:o, s:o}", "format",
                    &format, "version", &version, "step", &step, "attempt", &attempt,
                    "consumed_samples", &samples, "seed", &seed, "precision", &precision, "loss",
                    &loss, "files", &m->files, "tensors", &m->tensors) != 0) {
        return false;
    }
    char *end;
    m->meta = (struct ckpt_meta){.step = step,
                                 .consumed_samples = samples,
                                 .seed = strtoull(seed, &end, 10),
                                 .attempt = attempt,
                                 .loss = loss};
    return part_precision_parse(precision, &m->meta.precision) && strcmp(format, FORMAT) == 0 &&
           version == VERSION && step >= 0 && samples >= 0 && *seed != 0 && *end == 0 &&
           json_is_object(m->files) && json_is_object(m->tensors);
}

static bool good_file_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n < PART_FILE_MAX && name[0] != '.' && !strchr(name, '/');
}

static int check_tables(const char *path, const struct manifest *m, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(m->files, name, value)
    {
        if (!good_file_name(name) || !json_is_integer(json_object_get(value, "bytes")) ||
            !json_is_string(json_object_get(value, "sha256"))) {
            return error_set(err, ERR_DATA_LOSS, "%s: bad line for file \"%.64s\"", path, name);
        }
    }
    json_object_foreach(m->tensors, name, value)
    {
        if (!json_is_string(value) || !json_object_get(m->files, json_string_value(value))) {
            return error_set(err, ERR_DATA_LOSS, "%s: no file for tensor \"%.200s\"", path, name);
        }
    }
    return 0;
}

/* A regular file was written: whatever else stands in its place is damage, not a wrong name. */
static int fail_read(struct error *err)
{
    if (err && err->code == ERR_INVALID_ARGUMENT) {
        err->code = ERR_DATA_LOSS;
    }
    return -1;
}

/* The manifest's text, if it is what COMPLETE seals. */
static int read_sealed(const char *dir, const char *path, char **text, size_t *len,
                       struct error *err)
{
    char complete[PATH_MAX];
    struct shard_digest digest;
    char *seal;
    size_t seal_len;
    if (folder_file(dir, FOLDER_COMPLETE, complete, sizeof complete, err) != 0) {
        return -1;
    }
    if (fs_read_file(complete, 4096, &seal, &seal_len, err) != 0) {
        fail_read(err);
        return error_wrap(err, "%s is not a complete checkpoint", dir);
    }
    int rc = fs_read_file(path, FOLDER_JSON_MAX_BYTES, text, len, err);
    if (rc != 0) {
        fail_read(err);
    }
    if (rc == 0 && shard_digest_bytes(*text, *len, &digest, err) != 0) {
        free(*text);
        rc = -1;
    }
    if (rc == 0 && (seal_len < SHARD_SHA256_TEXT - 1 ||
                    memcmp(seal, digest.sha256, SHARD_SHA256_TEXT - 1) != 0)) {
        free(*text);
        rc = error_set(err, ERR_DATA_LOSS, "%s: is damaged: SHA-256 is not the one in %s", path,
                       FOLDER_COMPLETE);
    }
    free(seal);
    return rc;
}

int manifest_read(const char *dir, struct manifest *out, struct error *err)
{
    struct manifest m = {0};
    char path[PATH_MAX];
    char *text;
    size_t len;
    if (folder_file(dir, FOLDER_MANIFEST, path, sizeof path, err) != 0 ||
        read_sealed(dir, path, &text, &len, err) != 0) {
        return -1;
    }
    json_error_t fault;
    m.root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &fault);
    free(text);
    if (!m.root) {
        return error_set(err, ERR_DATA_LOSS, "%s:%d: %s", path, fault.line, fault.text);
    }
    int rc = take_fields(&m) ? check_tables(path, &m, err)
                             : error_set(err, ERR_DATA_LOSS, "%s: is not a manifest of version %d",
                                         path, VERSION);
    if (rc != 0) {
        manifest_free(&m);
        return rc;
    }
    *out = m;
    return 0;
}

void manifest_free(struct manifest *m)
{
    json_decref(m->root);
    *m = (struct manifest){0};
}

int manifest_check_file(const char *dir, const struct manifest *m, const char *file,
                        struct error *err)
{
    char path[PATH_MAX];
    struct shard_digest digest;
    const json_t *line = json_object_get(m->files, file);
    if (folder_file(dir, file, path, sizeof path, err) != 0 ||
        shard_digest_file(path, &digest, err) != 0) {
        return fail_read(err);
    }
    json_int_t bytes = json_integer_value(json_object_get(line, "bytes"));
    if (digest.size_bytes != bytes) {
        return error_set(err, ERR_DATA_LOSS, "%s: has %lld bytes, %lld were written", path,
                         (long long)digest.size_bytes, (long long)bytes);
    }
    if (strcmp(digest.sha256, json_string_value(json_object_get(line, "sha256"))) != 0) {
        return error_set(err, ERR_DATA_LOSS, "%s: is damaged: SHA-256 is not the manifest's", path);
    }
    return 0;
}
