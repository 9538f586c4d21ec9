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
#include "model/config.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/shard.h"

#define SHARD_BYTES_MAX ((int64_t)5000000000)
#define FILE_NAME_MAX 64

/* Parameters first .. first + num - 1 in one file. */
struct export_file {
    int32_t first, num;
    char file[FILE_NAME_MAX];
};

struct export
{
    const struct ckpt_state *state;
    const struct param **order; /* owned; forward order, as readers expect it */
    struct export_file *pieces; /* owned */
    int32_t num_pieces;
    int64_t total_bytes;
};

static int64_t param_bytes(const struct export *x, int32_t i)
{
    return x->order[i]->numel * (int64_t)dtype_size(x->state->dtype);
}

/* The table has the order in which gradients become ready: the other way round is forward. */
static int cut(struct export *x, int64_t shard_bytes_max, struct error *err)
{
    const struct param_table *table = x->state->table;
    int32_t n = table->num_params;
    x->order = calloc((size_t)n + 1, sizeof *x->order);
    x->pieces = calloc((size_t)n + 1, sizeof *x->pieces);
    if (!x->order || !x->pieces) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for the export's table");
    }
    int64_t filled = 0;
    for (int32_t i = 0; i < n; i++) {
        x->order[i] = &table->params[n - 1 - i];
        int64_t bytes = param_bytes(x, i);
        x->total_bytes += bytes;
        if (x->num_pieces == 0 || filled + bytes > shard_bytes_max) {
            x->pieces[x->num_pieces++].first = i;
            filled = 0;
        }
        filled += bytes;
        x->pieces[x->num_pieces - 1].num++;
    }
    for (int32_t i = 0; i < x->num_pieces; i++) {
        if (x->num_pieces == 1) {
            snprintf(x->pieces[i].file, FILE_NAME_MAX, "model.safetensors");
        } else {
            snprintf(x->pieces[i].file, FILE_NAME_MAX, "model-%05d-of-%05d.safetensors", i + 1,
                     x->num_pieces);
        }
    }
    return 0;
}

static int write_piece(const struct export *x, const char *dir, const struct export_file *piece,
                       struct error *err)
{
    /* transformers asks for this key. */
    static const char *const metadata[] = {"format", "pt", NULL};
    char path[PATH_MAX];
    if (folder_file(dir, piece->file, path, sizeof path, err) != 0) {
        return -1;
    }
    struct st_tensor *tensors = calloc((size_t)piece->num + 1, sizeof *tensors);
    const void **data = calloc((size_t)piece->num + 1, sizeof *data);
    int rc;
    if (tensors && data) {
        size_t size = dtype_size(x->state->dtype);
        for (int32_t i = 0; i < piece->num; i++) {
            const struct param *p = x->order[piece->first + i];
            tensors[i].name = (char *)(uintptr_t)p->name;
            tensors[i].dtype = x->state->dtype == DTYPE_F64 ? ST_F64 : ST_F32;
            tensors[i].num_dims = p->num_dims;
            memcpy(tensors[i].shape, p->shape, sizeof p->shape);
            data[i] = (const char *)x->state->weights.data + (size_t)p->offset * size;
        }
        struct shard_digest digest;
        rc = shard_write(path, tensors, data, piece->num, metadata, &digest, err);
    } else {
        rc = error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    free(tensors);
    free(data);
    return rc;
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
    for (int32_t i = 0; i < x->num_pieces; i++) {
        for (int32_t k = 0; k < x->pieces[i].num; k++) {
            json_object_set_new(map, x->order[x->pieces[i].first + k]->name,
                                json_string(x->pieces[i].file));
        }
    }
    char *text = json_object_size(map) == (size_t)x->state->table->num_params
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

static int write_config(const char *dir, const struct ckpt_state *state, const ModelConfig *config,
                        struct error *err)
{
    char path[PATH_MAX];
    if (folder_file(dir, "config.json", path, sizeof path, err) != 0) {
        return -1;
    }
    char *text = config_to_json(config, state->dtype == DTYPE_F64 ? "float64" : "float32");
    int rc = fs_write_atomic(path, text, strlen(text), 0644, err);
    free(text);
    return rc;
}

static int write_all(struct export *x, const char *dir, const ModelConfig *config,
                     int64_t shard_bytes_max, struct error *err)
{
    if (cut(x, shard_bytes_max, err) != 0 || fs_mkdirs(dir, 0775, err) != 0 ||
        write_config(dir, x->state, config, err) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < x->num_pieces; i++) {
        if (write_piece(x, dir, &x->pieces[i], err) != 0) {
            return -1;
        }
    }
    if (x->num_pieces > 1 && write_index(x, dir, err) != 0) {
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

int ckpt_export_hf_shards(const char *out_dir, const struct ckpt_state *state,
                          const ModelConfig *config, int64_t shard_bytes_max, struct error *err)
{
    char tmp[PATH_MAX], old[PATH_MAX], parent[PATH_MAX];
    int n = snprintf(tmp, sizeof tmp, "%s.tmp", out_dir);
    snprintf(old, sizeof old, "%s.old", out_dir);
    if (n < 0 || (size_t)n >= sizeof tmp || out_dir[0] == 0 || tmp[n - 5] == '/') {
        return error_set(err, ERR_INVALID_ARGUMENT, "\"%.200s\": not a usable path", out_dir);
    }
    parent_of(out_dir, parent, sizeof parent);
    struct export x = {.state = state};
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
    free(x.pieces);
    return rc == 0 ? 0 : error_wrap(err, "export to %s", out_dir);
}

int ckpt_export_hf(const char *out_dir, const struct ckpt_state *state, const ModelConfig *config,
                   struct error *err)
{
    return ckpt_export_hf_shards(out_dir, state, config, SHARD_BYTES_MAX, err);
}
