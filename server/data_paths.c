#include "server/data_paths.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Appends the components of path; "." and ".." are worked out. False: too long. */
static bool append(char out[PATH_MAX], const char *path)
{
    size_t at = strlen(out);
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len == 2 && memcmp(path, "..", 2) == 0) {
            char *slash = strrchr(out, '/');
            at = slash ? (size_t)(slash - out) : 0;
        } else if (len > 0 && !(len == 1 && *path == '.')) {
            if (at + 1 + len >= PATH_MAX) {
                return false;
            }
            out[at] = '/';
            memcpy(out + at + 1, path, len);
            at += len + 1;
        }
        out[at] = 0;
        path += len + (path[len] == '/');
    }
    return true;
}

/* Is what lies at rest, behind DATA_DIR, of a job that the tenant has? 1 yes, 0 no, -1 err. */
static int is_own(struct store *s, const char *rest, const char *tenant, struct error *err)
{
    char number[24];
    const char *digits = strncmp(rest, "/jobs/", 6) == 0 ? rest + 6 : "";
    size_t len = strspn(digits, "0123456789");
    int64_t id;
    struct error none = {0};
    if (len == 0 || len > 18 || digits[len] != '/' || *digits == '0') {
        return 0;
    }
    snprintf(number, sizeof number, "%.*s", (int)len, digits);
    int rc = store_job_find(s, number, tenant, &id, &none);
    if (rc < 0) {
        *err = none;
    }
    /* A job may be named like a number. */
    return rc == 1 ? id == strtoll(number, NULL, 10) : rc;
}

static int check_path(struct store *s, const char *data_dir, const char *field, const char *path,
                      const struct caller *who, struct error *err)
{
    char full[PATH_MAX] = "", cwd[PATH_MAX];
    size_t len = strlen(data_dir);
    if (!path || !*path) {
        return 0;
    }
    /* Relative ones count from where tandem-probe runs. */
    if (*path != '/' && getcwd(cwd, sizeof cwd)) {
        append(full, cwd);
    }
    if (!append(full, path) || strncmp(full, data_dir, len) != 0 ||
        (full[len] && full[len] != '/')) {
        return 0;
    }
    int own = is_own(s, full + len, who->tenant, err);
    if (own != 0) {
        return own < 0 ? -1 : 0;
    }
    return error_set(
        err, ERR_PERMISSION_DENIED,
        "%s: %.200s lies in the server's data folder, where tenant %s may read what its "
        "own jobs left, and nothing else",
        field, path, who->tenant);
}

int data_paths_check(struct store *s, const char *data_dir, const JobSpec *spec,
                     const struct caller *who, struct error *err)
{
    if (rights_is_admin(who)) {
        return 0;
    }
    if (spec->model &&
        (check_path(s, data_dir, "model.path", spec->model->path, who, err) != 0 ||
         check_path(s, data_dir, "model.config", spec->model->config, who, err) != 0)) {
        return -1;
    }
    for (size_t i = 0; spec->data && i < spec->data->n_train; i++) {
        if (check_path(s, data_dir, "data.train", spec->data->train[i]->path, who, err) != 0) {
            return -1;
        }
    }
    return 0;
}
