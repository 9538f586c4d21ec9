#include "runtime/ckpt/reader.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/ckpt/folder.h"

int reader_open(struct reader *r, const char *dir, int32_t idx, int32_t num, struct error *err)
{
    ASSERT(idx >= 0 && idx < num);
    *r = (struct reader){.dir = dir, .idx = idx, .num = num};
    if (manifest_read(dir, &r->m, err) != 0) {
        return -1;
    }
    r->checked = json_object();
    if (!r->checked) {
        reader_close(r);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", dir);
    }
    return 0;
}

void reader_close(struct reader *r)
{
    st_close(r->file);
    json_decref(r->checked);
    manifest_free(&r->m);
    *r = (struct reader){0};
}

static int check(struct reader *r, const char *name, struct error *err)
{
    if (json_object_get(r->checked, name)) {
        return 0;
    }
    if (manifest_check_file(r->dir, &r->m, name, err) != 0) {
        return -1;
    }
    json_object_set_new(r->checked, name, json_true());
    return 0;
}

/* The manifest's order is the same for all. */
static bool is_mine(const struct reader *r, const char *name)
{
    const char *other;
    json_t *value;
    int64_t i = 0;
    json_object_foreach(r->m.files, other, value)
    {
        if (strcmp(other, name) == 0) {
            return i % r->num == r->idx;
        }
        i++;
    }
    return false;
}

static int open_file(struct reader *r, const char *name, struct error *err)
{
    if (r->file && strcmp(r->file_name, name) == 0) {
        return 0;
    }
    st_close(r->file);
    r->file = NULL;
    if ((r->num == 1 || is_mine(r, name)) && check(r, name, err) != 0) {
        return -1;
    }
    char path[PATH_MAX];
    if (folder_file(r->dir, name, path, sizeof path, err) != 0) {
        return -1;
    }
    snprintf(r->file_name, sizeof r->file_name, "%s", name);
    return st_open(&r->file, NULL, path, err) == 0 ? 0 : reader_doubt(r, err);
}

int reader_doubt(struct reader *r, struct error *err)
{
    struct error damage = {0};
    if (r->file_name[0] && check(r, r->file_name, &damage) != 0 && err) {
        *err = damage;
    }
    return -1;
}

int reader_check_share(struct reader *r, struct error *err)
{
    const char *name;
    json_t *value;
    int64_t i = 0;
    json_object_foreach(r->m.files, name, value)
    {
        if (r->num > 1 && i++ % r->num == r->idx && check(r, name, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int reader_expect(const struct reader *r, const char *name, struct error *err)
{
    return json_object_get(r->m.tensors, name)
               ? 0
               : error_set(err, ERR_DATA_LOSS, "%s: tensor \"%s\" is missing", r->dir, name);
}

int reader_find(struct reader *r, const char *name, const struct st_tensor **tensor,
                struct error *err)
{
    if (reader_expect(r, name, err) != 0 ||
        open_file(r, json_string_value(json_object_get(r->m.tensors, name)), err) != 0) {
        return -1;
    }
    *tensor = st_header_find(st_file_header(r->file), name);
    if (!*tensor) {
        error_set(err, ERR_DATA_LOSS, "%s: tensor \"%s\" is missing", st_file_path(r->file), name);
        return reader_doubt(r, err);
    }
    return 0;
}
