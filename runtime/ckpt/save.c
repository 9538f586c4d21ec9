#include "runtime/ckpt/ckpt.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fs.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/part.h"
#include "runtime/ckpt/shard.h"

#define TENSOR_NAME_MAX (PARAM_NAME_MAX + 16)

/* One file in the making. */
struct shard {
    struct st_tensor *tensors;
    const void **data;
    char (*names)[TENSOR_NAME_MAX];
    int32_t num;
};

static int shard_new(struct shard *s, int32_t cap, struct error *err)
{
    size_t n = (size_t)cap + 1;
    *s = (struct shard){calloc(n, sizeof *s->tensors), calloc(n, sizeof *s->data),
                        calloc(n, sizeof *s->names), 0};
    if (s->tensors && s->data && s->names) {
        return 0;
    }
    return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for a checkpoint's table");
}

static void shard_free(struct shard *s)
{
    free(s->tensors);
    free(s->data);
    free(s->names);
}

static void shard_add(struct shard *s, const struct param *p, const char *suffix, const void *flat,
                      enum dtype dtype)
{
    int32_t i = s->num++;
    snprintf(s->names[i], sizeof s->names[i], "%s%s", p->name, suffix);
    struct st_tensor *t = &s->tensors[i];
    *t = (struct st_tensor){.name = s->names[i],
                            .dtype = dtype == DTYPE_F64 ? ST_F64 : ST_F32,
                            .num_dims = p->num_dims};
    memcpy(t->shape, p->shape, sizeof p->shape);
    s->data[i] = (const char *)flat + (size_t)p->offset * dtype_size(dtype);
}

/* The parameters lie in a row; a writer has those whose middle lies in its share of the row. */
static int32_t writer_of(const struct param *p, int64_t before, int64_t total, int32_t num_writers)
{
    double middle = (double)before + (double)p->numel / 2;
    int32_t w = (int32_t)(middle / (double)total * num_writers);
    return w < num_writers ? w : num_writers - 1;
}

static void collect(const struct ckpt_state *state, int32_t writer, int32_t num_writers,
                    struct shard *weights, struct shard *optim)
{
    const struct param_table *table = state->table;
    int64_t total = 0, before = 0;
    for (int32_t i = 0; i < table->num_params; i++) {
        total += table->params[i].numel;
    }
    for (int32_t i = 0; i < table->num_params; before += table->params[i++].numel) {
        const struct param *p = &table->params[i];
        if (writer_of(p, before, total, num_writers) != writer) {
            continue;
        }
        shard_add(weights, p, "", state->weights.data, state->dtype);
        if (state->exp_avg.data) {
            shard_add(optim, p, PART_EXP_AVG, state->exp_avg.data, state->dtype);
            shard_add(optim, p, PART_EXP_AVG_SQ, state->exp_avg_sq.data, state->dtype);
        }
    }
}

/* Writes one file and its line in the part's notes. */
static int write_file(const char *dir, const char *kind, int32_t writer, struct shard *s,
                      json_t *files, struct error *err)
{
    char name[PART_FILE_MAX], path[PATH_MAX];
    struct shard_digest digest;
    part_file(kind, writer, name);
    if (folder_file(dir, name, path, sizeof path, err) != 0 ||
        shard_write(path, s->tensors, s->data, s->num, NULL, &digest, err) != 0) {
        return -1;
    }
    json_t *tensors = json_array();
    for (int32_t i = 0; i < s->num; i++) {
        json_array_append_new(tensors, json_string(s->names[i]));
    }
    json_t *file = json_pack("{s:I, s:s, s:o}", "bytes", (json_int_t)digest.size_bytes, "sha256",
                             digest.sha256, "tensors", tensors);
    if (!file || json_array_size(tensors) != (size_t)s->num ||
        json_object_set_new(files, name, file) != 0) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    return 0;
}

static int write_part(const char *dir, const struct ckpt_state *state, const struct ckpt_meta *meta,
                      int32_t writer, int32_t num_writers, struct error *err)
{
    struct shard weights = {0}, optim = {0};
    json_t *files = json_object();
    int rc = -1;
    if (!files) {
        error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for a checkpoint's notes");
        goto out;
    }
    if (shard_new(&weights, state->table->num_params, err) != 0 ||
        shard_new(&optim, 2 * state->table->num_params, err) != 0) {
        goto out;
    }
    collect(state, writer, num_writers, &weights, &optim);
    if (write_file(dir, PART_WEIGHTS, writer, &weights, files, err) != 0 ||
        (state->exp_avg.data && write_file(dir, PART_OPTIM, writer, &optim, files, err) != 0)) {
        goto out;
    }
    rc = part_write(dir, meta, state->dtype, writer, num_writers, files, err);
out:
    shard_free(&weights);
    shard_free(&optim);
    json_decref(files);
    return rc;
}

/* Space of a save that failed is given back at once: the disk may be full. */
static void remove_part(const char *dir, int32_t writer)
{
    static const char *const kinds[] = {PART_NOTES, PART_WEIGHTS, PART_OPTIM};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[PART_FILE_MAX], path[PATH_MAX];
        part_file(kinds[i], writer, name);
        if (fs_join(path, sizeof path, dir, name)) {
            unlink(path);
        }
    }
}

int ckpt_save_part(const char *parent, const struct ckpt_state *state, const struct ckpt_meta *meta,
                   int32_t writer, int32_t num_writers, struct error *err)
{
    ASSERT(writer >= 0 && writer < num_writers && num_writers <= FOLDER_WRITERS_MAX);
    ASSERT(state->dtype == DTYPE_F32 || state->dtype == DTYPE_F64);
    ASSERT(!state->exp_avg.data == !state->exp_avg_sq.data);
    char dir[PATH_MAX];
    struct folder_name name = {meta->step, meta->attempt, true};
    if (folder_path(parent, &name, dir, sizeof dir, err) != 0 || fs_mkdirs(dir, 0775, err) != 0) {
        return -1;
    }
    remove_part(dir, writer);
    if (write_part(dir, state, meta, writer, num_writers, err) != 0) {
        remove_part(dir, writer);
        return error_wrap(err, "save step %lld", (long long)meta->step);
    }
    return 0;
}
