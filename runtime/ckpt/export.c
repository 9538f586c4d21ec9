#include "runtime/ckpt/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/fs.h"
#include "kernels/host/bf16.h"
#include "model/config.h"
#include "runtime/ckpt/fill.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/reader.h"
#include "runtime/ckpt/shard.h"

#define SHARD_BYTES_MAX ((int64_t)5000000000)
#define FILE_NAME_MAX 64
#define CHUNK_ELEMENTS ((int64_t)1 << 16)

/* Parameters first .. first + num - 1 in one file. */
struct export_file {
    int32_t first, num;
    char name[FILE_NAME_MAX];
};

struct export
{
    struct reader from;
    const struct param_table *table;
    const struct param **order; /* owned; forward order, as readers expect it */
    struct export_file *files;  /* owned */
    int32_t num_files;
    enum dtype dtype;  /* of the new files */
    enum dtype stored; /* of the checkpoint's */
    int64_t total_bytes;
};

static int64_t param_bytes(const struct export *x, int32_t i)
{
    return state_true_numel(x->order[i]) * (int64_t)dtype_size(x->dtype);
}

/* Forward: by unit, then as the family lists them. The table's own order is by when gradients
 * become ready, and differs between layouts. */
static int by_place(const void *a, const void *b)
{
    const struct param *p = *(const struct param *const *)a, *q = *(const struct param *const *)b;
    if (p->unit != q->unit) {
        return p->unit < q->unit ? -1 : 1;
    }
    if (p->def_idx != q->def_idx) {
        return p->def_idx < q->def_idx ? -1 : 1;
    }
    return p < q ? -1 : p > q;
}

static int cut(struct export *x, int64_t shard_bytes_max, struct error *err)
{
    int32_t n = x->table->num_params;
    x->order = calloc((size_t)n + 1, sizeof *x->order);
    x->files = calloc((size_t)n + 1, sizeof *x->files);
    if (!x->order || !x->files) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for the export's table");
    }
    for (int32_t i = 0; i < n; i++) {
        x->order[i] = &x->table->params[i];
    }
    qsort(x->order, (size_t)n, sizeof *x->order, by_place);
    int64_t filled = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t bytes = param_bytes(x, i);
        x->total_bytes += bytes;
        if (x->num_files == 0 || filled + bytes > shard_bytes_max) {
            x->files[x->num_files++].first = i;
            filled = 0;
        }
        filled += bytes;
        x->files[x->num_files - 1].num++;
    }
    for (int32_t i = 0; i < x->num_files; i++) {
        if (x->num_files == 1) {
            snprintf(x->files[i].name, FILE_NAME_MAX, "model.safetensors");
        } else {
            snprintf(x->files[i].name, FILE_NAME_MAX, "model-%05d-of-%05d.safetensors", i + 1,
                     x->num_files);
        }
    }
    return 0;
}

static enum st_dtype type_of(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? ST_F64 : dtype == DTYPE_BF16 ? ST_BF16 : ST_F32;
}

/* Elements as they are in the checkpoint become those of the new file, in place. */
static void convert(const struct export *x, char *chunk, int64_t n)
{
    for (int64_t i = 0; x->dtype == DTYPE_BF16 && i < n; i++) {
        float wide;
        memcpy(&wide, chunk + (size_t)i * sizeof wide, sizeof wide);
        uint16_t low = bf16_of(wide);
        memcpy(chunk + (size_t)i * sizeof low, &low, sizeof low);
    }
}

/* One tensor, from the checkpoint's file behind what is in the new one. */
static int copy_tensor(struct export *x, const struct param *p, struct shard_writer *to,
                       char *chunk, struct error *err)
{
    const struct st_tensor *t;
    if (reader_find(&x->from, p->name, &t, err) != 0) {
        return -1;
    }
    if (fill_check_shape(p, x->from.file, t, err) != 0) {
        return -1;
    }
    if (t->dtype != type_of(x->stored)) {
        return error_set(err, ERR_DATA_LOSS, "%s: tensor \"%s\" is stored as %s, others are not",
                         st_file_path(x->from.file), p->name, st_dtype_name(t->dtype));
    }
    int64_t left = state_true_numel(p);
    for (int64_t at = 0; left > 0;) {
        int64_t n = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
        if (st_read_elements(x->from.file, t, at, n, chunk, dtype_size(x->stored), err) != 0) {
            return -1;
        }
        convert(x, chunk, n);
        if (shard_append(to, chunk, (size_t)n * dtype_size(x->dtype), err) != 0) {
            return -1;
        }
        at += n;
        left -= n;
    }
    return 0;
}

static int lay_out(const struct export *x, const struct export_file *file, char **header,
                   size_t *header_len, struct error *err)
{
    /* transformers asks for this key. */
    static const char *const metadata[] = {"format", "pt", NULL};
    uint64_t data_bytes;
    struct st_tensor *tensors = calloc((size_t)file->num + 1, sizeof *tensors);
    if (!tensors) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", file->name);
    }
    for (int32_t i = 0; i < file->num; i++) {
        const struct param *p = x->order[file->first + i];
        tensors[i].name = (char *)(uintptr_t)p->name;
        tensors[i].dtype = type_of(x->dtype);
        tensors[i].num_dims = p->num_dims;
        memcpy(tensors[i].shape, p->shape, sizeof p->shape);
    }
    int rc = st_layout(tensors, file->num, metadata, header, header_len, &data_bytes, err);
    free(tensors);
    return rc;
}

static int fill_file(struct export *x, const struct export_file *file, struct shard_writer *to,
                     struct error *err)
{
    char *header;
    size_t header_len;
    if (lay_out(x, file, &header, &header_len, err) != 0) {
        return -1;
    }
    int rc = shard_append(to, header, header_len, err);
    free(header);
    char *chunk = malloc((size_t)CHUNK_ELEMENTS * dtype_size(x->stored));
    if (rc == 0 && !chunk) {
        rc = error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", file->name);
    }
    for (int32_t i = 0; rc == 0 && i < file->num; i++) {
        rc = copy_tensor(x, x->order[file->first + i], to, chunk, err);
    }
    free(chunk);
    return rc;
}

static int write_file(struct export *x, const char *dir, const struct export_file *file,
                      struct error *err)
{
    char path[PATH_MAX];
    struct shard_writer *to;
    struct shard_digest digest;
    if (folder_file(dir, file->name, path, sizeof path, err) != 0 ||
        shard_create(&to, path, err) != 0) {
        return -1;
    }
    if (fill_file(x, file, to, err) != 0) {
        shard_discard(to);
        return -1;
    }
    return shard_finish(to, &digest, err);
}

static int write_index(const struct export *x, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    if (folder_file(dir, "model.safetensors.index.json", path, sizeof path, err) != 0) {
        return -1;
    }
    json_t *root = json_pack("{s:{s:I}, s:{}}", "metadata", "total_size",
                             (json_int_t)x->total_bytes, "weight_map");
    json_t *map = json_object_get(root, "weight_map");
    for (int32_t i = 0; i < x->num_files; i++) {
        for (int32_t k = 0; k < x->files[i].num; k++) {
            json_object_set_new(map, x->order[x->files[i].first + k]->name,
                                json_string(x->files[i].name));
        }
    }
    char *text = json_object_size(map) == (size_t)x->table->num_params
                     ? json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(2))
                     : NULL;
    json_decref(root);
    if (!text) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    int rc = fs_write_atomic(path, text, strlen(text), 0644, err);
    free(text);
    return rc;
}

static int write_config(const struct export *x, const char *dir, const ModelConfig *config,
                        struct error *err)
{
    char path[PATH_MAX];
    if (folder_file(dir, "config.json", path, sizeof path, err) != 0) {
        return -1;
    }
    const char *word = x->dtype == DTYPE_F64    ? "float64"
                       : x->dtype == DTYPE_BF16 ? "bfloat16"
                                                : "float32";
    char *text = config_to_json(config, word);
    int rc = fs_write_atomic(path, text, strlen(text), 0644, err);
    free(text);
    return rc;
}

static int write_all(struct export *x, const char *dir, const ModelConfig *config,
                     int64_t shard_bytes_max, struct error *err)
{
    if (cut(x, shard_bytes_max, err) != 0 || fs_mkdirs(dir, 0775, err) != 0 ||
        write_config(x, dir, config, err) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < x->num_files; i++) {
        if (write_file(x, dir, &x->files[i], err) != 0) {
            return -1;
        }
    }
    if (x->num_files > 1 && write_index(x, dir, err) != 0) {
        return -1;
    }
    return fs_fsync_dir(dir, err);
}

/* Puts the new folder where the old one is: in one move where the filesystem can, else the old one
 * goes away first. */
static int swap_in(const char *tmp, const char *out_dir, const char *old, struct error *err)
{
    if (fs_exists(out_dir)) {
        if (renameat2(AT_FDCWD, tmp, AT_FDCWD, out_dir, RENAME_EXCHANGE) == 0) {
            return fs_remove_tree(tmp, err);
        }
        if (errno != EINVAL && errno != ENOSYS) {
            return error_errno(err, errno, "exchange %s and %s", tmp, out_dir);
        }
        if (rename(out_dir, old) != 0) {
            return error_errno(err, errno, "rename %s to %s", out_dir, old);
        }
    }
    if (rename(tmp, out_dir) != 0) {
        return error_errno(err, errno, "rename %s to %s", tmp, out_dir);
    }
    return fs_remove_tree(old, err);
}

static void parent_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
        snprintf(out, size, "%s", slash ? "/" : ".");
    } else {
        snprintf(out, size, "%.*s", (int)(slash - path), path);
    }
}

int ckpt_export_hf_shards(const char *out_dir, const char *ckpt_dir,
                          const struct param_table *table, const ModelConfig *config,
                          int64_t shard_bytes_max, struct error *err)
{
    char tmp[PATH_MAX], old[PATH_MAX], parent[PATH_MAX];
    int n = snprintf(tmp, sizeof tmp, "%s.tmp", out_dir);
    snprintf(old, sizeof old, "%s.old", out_dir);
    if (n < 0 || (size_t)n >= sizeof tmp || out_dir[0] == 0 || tmp[n - 5] == '/') {
        return error_set(err, ERR_INVALID_ARGUMENT, "\"%.200s\": not a usable path", out_dir);
    }
    parent_of(out_dir, parent, sizeof parent);
    struct export x = {.table = table};
    if (reader_open(&x.from, ckpt_dir, 0, 1, err) != 0) {
        return error_wrap(err, "export to %s", out_dir);
    }
    x.dtype = x.from.m.meta.precision;
    x.stored = dtype_wide(x.dtype);
    /* What a killed export left. */
    int rc = fs_remove_tree(tmp, err);
    if (rc == 0) {
        rc = write_all(&x, tmp, config, shard_bytes_max, err);
    }
    if (rc == 0) {
        rc = swap_in(tmp, out_dir, old, err);
    } else {
        fs_remove_tree(tmp, NULL);
    }
    if (rc == 0) {
        rc = fs_fsync_dir(parent, err);
    }
    free(x.order);
    free(x.files);
    reader_close(&x.from);
    return rc == 0 ? 0 : error_wrap(err, "export to %s", out_dir);
}

int ckpt_export_hf(const char *out_dir, const char *ckpt_dir, const struct param_table *table,
                   const ModelConfig *config, struct error *err)
{
    return ckpt_export_hf_shards(out_dir, ckpt_dir, table, config, SHARD_BYTES_MAX, err);
}
