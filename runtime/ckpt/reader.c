#include "runtime/ckpt/reader.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/ckpt/folder.h"

int reader_open(struct reader *r, const char *dir, struct error *err)
{
    *r = (struct reader){.dir = dir};
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

static int open_file(struct reader *r, const char *name, struct error *err)
{
    if (r->file && strcmp(r->file_name, name) == 0) {
        return 0;
    }
    st_close(r->file);
    r->file = NULL;
    if (!json_object_get(r->checked, name)) {
        if (manifest_check_file(r->dir, &r->m, name, err) != 0) {
            return -1;
        }
        json_object_set_new(r->checked, name, json_true());
    }
    char path[PATH_MAX];
    if (folder_file(r->dir, name, path, sizeof path, err) != 0) {
        return -1;
    }
    snprintf(r->file_name, sizeof r->file_name, "%s", name);
    return st_open(&r->file, NULL, path, err);
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
    return *tensor ? 0
                   : error_set(err, ERR_DATA_LOSS, "%s: tensor \"%s\" is missing",
                               st_file_path(r->file), name);
}
