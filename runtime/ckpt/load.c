#include "runtime/ckpt/ckpt.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/ckpt/fill.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/part.h"
#include "runtime/ckpt/reader.h"

int ckpt_mark_damaged(const char *dir, const char *why, struct error *err)
{
    char path[PATH_MAX], text[ERROR_TEXT_MAX + 2];
    if (folder_file(dir, FOLDER_DAMAGED, path, sizeof path, err) != 0) {
        return -1;
    }
    int n = snprintf(text, sizeof text, "%s\n", why);
    return fs_write_atomic(path, text, (size_t)n, 0644, err);
}

static int load_tensor(struct reader *r, const struct ckpt_state *state,
                       const struct ckpt_part *part, const struct param *p, const char *suffix,
                       struct error *err)
{
    char name[PARAM_NAME_MAX + 16];
    const struct st_tensor *t;
    snprintf(name, sizeof name, "%s%s", p->name, suffix);
    if (!state_any(state, part, p)) {
        return reader_expect(r, name, err);
    }
    if (reader_find(r, name, &t, err) != 0) {
        return -1;
    }
    return fill_param(state, part, p, r->file, t, err) == 0 ? 0 : reader_doubt(r, err);
}

static int load_part(struct reader *r, const struct ckpt_state *state, const struct ckpt_part *part,
                     const char *suffix, struct error *err)
{
    const struct param_table *table = state->table;
    for (int32_t i = 0; part->data && i < table->num_params; i++) {
        if (load_tensor(r, state, part, &table->params[i], suffix, err) != 0) {
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

static int check_extra(const struct reader *r, const struct param_table *table, struct error *err)
{
    const char *name;
    json_t *file;
    json_object_foreach(r->m.tensors, name, file)
    {
        if (!known(table, name)) {
            return error_set(err, ERR_DATA_LOSS,
                             "%s: tensor \"%.200s\" is not one of the model's parameters", r->dir,
                             name);
        }
    }
    return 0;
}

int ckpt_load(const char *dir, const struct ckpt_state *state, struct ckpt_meta *meta,
              struct error *err)
{
    return ckpt_load_share(dir, state, meta, 0, 1, err);
}

int ckpt_load_share(const char *dir, const struct ckpt_state *state, struct ckpt_meta *meta,
                    int32_t idx, int32_t num, struct error *err)
{
    struct reader r;
    if (reader_open(&r, dir, idx, num, err) != 0) {
        return -1;
    }
    int rc = -1;
    if (check_extra(&r, state->table, err) == 0 &&
        load_part(&r, state, &state->weights, "", err) == 0 &&
        load_part(&r, state, &state->exp_avg, PART_EXP_AVG, err) == 0 &&
        load_part(&r, state, &state->exp_avg_sq, PART_EXP_AVG_SQ, err) == 0 &&
        reader_check_share(&r, err) == 0) {
        *meta = r.m.meta;
        rc = 0;
    }
    reader_close(&r);
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
