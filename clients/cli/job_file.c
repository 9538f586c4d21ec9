#include "clients/cli/job_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "proto/text.h"

static int read_stdin(char **out, size_t *len, struct error *err)
{
    struct buf b = {0};
    char chunk[65536];
    ssize_t n;
    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0) {
        buf_append(&b, chunk, (size_t)n);
        if (b.len > TEXT_MAX_BYTES) {
            buf_free(&b);
            return error_set(err, ERR_INVALID_ARGUMENT, "standard input: more than %zu bytes",
                             TEXT_MAX_BYTES);
        }
    }
    if (n < 0) {
        int e = errno;
        buf_free(&b);
        return error_errno(err, e, "read standard input");
    }
    *len = b.len;
    *out = buf_take(&b);
    return 0;
}

/* Absolute folder of the file. */
static int folder_of(const char *file, char out[PATH_MAX], struct error *err)
{
    char text[PATH_MAX];
    if (strcmp(file, "-") == 0 || !strchr(file, '/')) {
        snprintf(text, sizeof text, ".");
    } else {
        snprintf(text, sizeof text, "%s", file);
        char *slash = strrchr(text, '/');
        slash[slash == text] = 0;
    }
    return realpath(text, out) ? 0 : error_errno(err, errno, "folder of %s", file);
}

/* protobuf-c's strings are malloc'ed, or a shared default that must not be freed. */
static void make_absolute(char **path, const char *dir)
{
    const char *p = *path;
    if (!p || !p[0] || p[0] == '/') {
        return;
    }
    while (p[0] == '.' && p[1] == '/') {
        p += 2 + strspn(p + 2, "/");
    }
    struct buf b = {0};
    buf_printf(&b, "%s%s%s", dir, strcmp(dir, "/") ? "/" : "", strcmp(p, ".") ? p : "");
    free(*path);
    *path = buf_take(&b);
}

/* Makes the relative paths of a spec absolute, below dir (absolute). */
static void job_file_resolve(JobSpec *spec, const char *dir)
{
    if (spec->model) {
        make_absolute(&spec->model->path, dir);
        make_absolute(&spec->model->config, dir);
    }
    if (!spec->data) {
        return;
    }
    /* The word (which may be the shared default) is no path. */
    if (spec->data->tokenizer && strcmp(spec->data->tokenizer, "bytes")) {
        make_absolute(&spec->data->tokenizer, dir);
    }
    for (size_t i = 0; i < spec->data->n_train; i++) {
        make_absolute(&spec->data->train[i]->path, dir);
    }
    for (size_t i = 0; i < spec->data->n_validation; i++) {
        make_absolute(&spec->data->validation[i]->path, dir);
    }
}

static int apply_sets(JobSpec *spec, const char *const *sets, int num_sets, struct error *err)
{
    char cwd[PATH_MAX];
    for (int i = 0; i < num_sets; i++) {
        const char *eq = strchr(sets[i], '=');
        char path[256];
        if (!eq || eq == sets[i] || (size_t)(eq - sets[i]) >= sizeof path) {
            return error_set(err, ERR_INVALID_ARGUMENT, "--set %.200s: expected a.b=c", sets[i]);
        }
        memcpy(path, sets[i], (size_t)(eq - sets[i]));
        path[eq - sets[i]] = 0;
        if (text_set(&spec->base, path, eq + 1, err)) {
            return error_wrap(err, "--set %.200s", sets[i]);
        }
    }
    if (!getcwd(cwd, sizeof cwd)) {
        return error_errno(err, errno, "working folder");
    }
    job_file_resolve(spec, cwd);
    return 0;
}

static int parse(struct job_file *f, const char *file, struct error *err)
{
    char dir[PATH_MAX];
    ProtobufCMessage *message;
    if (text_parse(f->name, f->text, f->len, &job_spec__descriptor, &message, err)) {
        return -1;
    }
    f->spec = (JobSpec *)message;
    if (folder_of(file, dir, err)) {
        return -1;
    }
    job_file_resolve(f->spec, dir);
    return apply_sets(f->spec, f->sets, f->num_sets, err);
}

int job_file_read(struct job_file *out, const char *file, const char *const *sets, int num_sets,
                  struct error *err)
{
    bool is_stdin = strcmp(file, "-") == 0;
    struct job_file f = {.name = is_stdin ? "stdin" : file, .sets = sets, .num_sets = num_sets};
    if (is_stdin ? read_stdin(&f.text, &f.len, err)
                 : fs_read_file(file, TEXT_MAX_BYTES, &f.text, &f.len, err)) {
        return -1;
    }
    if (parse(&f, file, err)) {
        job_file_free(&f);
        return -1;
    }
    *out = f;
    return 0;
}

void job_file_free(struct job_file *f)
{
    if (f->spec) {
        job_spec__free_unpacked(f->spec, NULL);
    }
    free(f->text);
    *f = (struct job_file){0};
}

/* The field that a text begins with; false: with none. */
static bool leading_field(const char *text, char out[128])
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    if (n == 0 || n >= 128 || text[n] != ':') {
        return false;
    }
    memcpy(out, text, n);
    out[n] = 0;
    char first[128];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(out, "."), out);
    return protobuf_c_message_descriptor_get_field_by_name(&job_spec__descriptor, first) != NULL;
}

/* Is one path the other, or below it? */
static bool covers(const char *path, size_t len, const char *other)
{
    size_t n = strlen(other), shorter = n < len ? n : len;
    return strncmp(path, other, shorter) == 0 &&
           (n == len || (n < len ? path : other)[shorter] == '.');
}

bool job_file_place(const struct job_file *f, struct error *err)
{
    char field[128];
    size_t line, column;
    if (!leading_field(err->text, field)) {
        return false;
    }
    for (int i = f->num_sets; i-- > 0;) {
        size_t len = strcspn(f->sets[i], "=");
        /* Of "training.steps" itself, or of "training" for a fault between its fields. */
        if (covers(f->sets[i], len, field)) {
            error_wrap(err, "--set %.200s", f->sets[i]);
            return true;
        }
    }
    if (text_place(f->text, f->len, field, &line, &column)) {
        error_wrap(err, "%s:%zu:%zu", f->name, line, column);
    } else {
        error_wrap(err, "%s", f->name);
    }
    return true;
}
