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

void job_file_resolve(JobSpec *spec, const char *dir)
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

int job_file_read(const char *file, const char *const *sets, int num_sets, JobSpec **out,
                  struct error *err)
{
    char dir[PATH_MAX], *text;
    size_t len;
    bool is_stdin = strcmp(file, "-") == 0;
    if (is_stdin ? read_stdin(&text, &len, err)
                 : fs_read_file(file, TEXT_MAX_BYTES, &text, &len, err)) {
        return -1;
    }
    ProtobufCMessage *message;
    int r = text_parse(is_stdin ? "stdin" : file, text, len, &job_spec__descriptor, &message, err);
    free(text);
    if (r) {
        return -1;
    }
    JobSpec *spec = (JobSpec *)message;
    if (folder_of(file, dir, err)) {
        job_spec__free_unpacked(spec, NULL);
        return -1;
    }
    job_file_resolve(spec, dir);
    if (apply_sets(spec, sets, num_sets, err)) {
        job_spec__free_unpacked(spec, NULL);
        return -1;
    }
    *out = spec;
    return 0;
}
