#include "runtime/ckpt/ckpt.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/ckpt/fill.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/part.h"

int ckpt_mark_damaged(const char *dir, const char *why, struct error *err)
{
    char path[PATH_MAX], text[ERROR_TEXT_MAX + 2];
    if (folder_file(dir, FOLDER_DAMAGED, path, sizeof path, err) != 0) {
        return -1;
    }
    int n = snprintf(text, sizeof text, "%s\n", why);
    return fs_write_atomic(path, text, (size_t)n, 0644, err);
}

/* While a checkpoint is read: one file is open at a time, and stays so for its neighbours. */
struct load {
    const char *dir;
    const struct ckpt_state *state;
    struct manifest m;
    char file_name[PART_FILE_MAX];
    struct st_file *file;
    json_t *checked; /* names of files whose digest was right */
};

static int open_file(struct load *l, const char *name, struct error *err)
{
    if (l->file && strcmp(l->file_name, name) == 0) {
        return 0;
    }
    st_close(l->file);
    l->file = NULL;
    if (!json_object_get(l->checked, name)) {
        if (manifest_check_file(l->dir, &l->m, name, err) != 0) {
            return -1;
        }
        json_object_set_new(l->checked, name, json_true());
    }
    char path[PATH_MAX];
    if (folder_file(l->dir, name, path, sizeof path, err) != 0) {
        return -1;
    }
    snprintf(l->file_name, sizeof l->file_name, "%s", name);
    return st_open(&l->file, NULL, path, err);
}

static int load_tensor(struct load *l, const struct param *p, const char *suffix,
                       const struct ckpt_part *part, struct error *err)
{
    char name[PARAM_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s%s", p->name, suffix);
    const char *file = json_string_value(json_object_get(l->m.tensors, name));
    if (!file) {
        return error_set(err, ERR_DATA_LOSS, "%s: tensor \"%s\" is missing", l->dir, name);
    }
    if (!state_any(l->state, part, p)) {
        return 0;
    }
    if (open_file(l, file, err) != 0) {
        return -1;
    }
    const struct st_tensor *t = st_header_find(st_file_header(l->file), name);
    if (!t) {
        return error_set(err, ERR_DATA_LOSS, "%s: tensor \"%s\" is missing", st_file_path(l->file),
                         name);
    }
    return fill_param(l->state, part, p, l->file, t, err);
}

static int load_all(struct load *l, const char *suffix, const struct ckpt_part *part,
                    struct error *err)
{
    const struct param_table *table = l->state->table;
    for (int32_t i = 0; part->data && i < table->num_params; i++) {
        if (load_tensor(l, &table->params[i], suffix, part, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Does the table know the tensor, itself or as the moment of one? */
static bool known(const struct param_table *table, const char *name)
{
    static const char *const suffixes[] = {"", PART_EXP_AVG, PART_EXP_AVG_SQ};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char base[PARAM_NAME_MAX];
        size_t n = strlen(name), tail = strlen(suffixes[i]);
        if (n <= tail || n - tail >= sizeof base || strcmp(name + n - tail, suffixes[i]) != 0) {
            continue;
        }
        snprintf(base, sizeof base, "%.*s", (int)(n - tail), name);
        if (params_find(table, base) >= 0) {
            return true;
        }
    }
    return false;
}

static int check_extra(const struct load *l, struct error *err)
{
    const char *name;
    json_t *file;
    json_object_foreach(l->m.tensors, name, file)
    {
        if (!known(l->state->table, name)) {
            return error_set(err, ERR_DATA_LOSS,
                             "%s: tensor \"%.200s\" is not one of the model's parameters", l->dir,
                             name);
        }
    }
    return 0;
}

int ckpt_load(const char *dir, const struct ckpt_state *state, struct ckpt_meta *meta,
              struct error *err)
{
    struct load l = {.dir = dir, .state = state};
    if (manifest_read(dir, &l.m, err) != 0) {
        return -1;
    }
    l.checked = json_object();
    int rc = l.checked ? check_extra(&l, err)
                       : error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", dir);
    if (rc == 0) {
        rc = load_all(&l, "", &state->weights, err);
    }
    if (rc == 0) {
        rc = load_all(&l, PART_EXP_AVG, &state->exp_avg, err);
    }
    if (rc == 0) {
        rc = load_all(&l, PART_EXP_AVG_SQ, &state->exp_avg_sq, err);
    }
    if (rc == 0) {
        *meta = l.m.meta;
    }
    st_close(l.file);
    json_decref(l.checked);
    manifest_free(&l.m);
    return rc;
}

int ckpt_verify(const char *dir, struct ckpt_meta *meta, struct error *err)
{
    struct manifest m;
    if (manifest_read(dir, &m, err) != 0) {
        return -1;
    }
    int rc = 0;
    const char *name;
    json_t *file;
    json_object_foreach(m.files, name, file)
    {
        rc = manifest_check_file(dir, &m, name, err);
        if (rc != 0) {
            break;
        }
    }
    if (rc == 0) {
        *meta = m.meta;
    }
    manifest_free(&m);
    return rc;
}
