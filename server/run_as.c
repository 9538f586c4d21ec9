#include "server/run_as.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "server/launch/spawn.h"

struct run_as {
    RunAs *const *entries; /* borrowed */
    size_t num;
};

/* May its user be had, and do both mean the same data folder? */
static int check(const char *bin_dir, const char *data_dir, const RunAs *entry, struct error *err)
{
    char jobs[PATH_MAX], said[PATH_MAX + 2];
    const char *const words[] = {"check", entry->user, NULL};
    if (!entry->tenant || !*entry->tenant || !entry->user || !*entry->user) {
        return error_set(err, ERR_INVALID_ARGUMENT, "run_as: tenant and user must both be said");
    }
    if (launch_spawn_ask(bin_dir, words, said, sizeof said, err) != 0) {
        error_wrap(err, "run_as of tenant %s", entry->tenant);
        return -1;
    }
    said[strcspn(said, "\n")] = 0;
    if (!fs_join(jobs, sizeof jobs, data_dir, "jobs") || strcmp(jobs, said) != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "run_as: tandem-spawn is configured for %s, but this data folder is %s",
                         said, data_dir);
    }
    return 0;
}

static int set_mode(const char *path, mode_t mode, struct error *err)
{
    return chmod(path, mode) == 0 || errno == ENOENT
               ? 0
               : error_errno(err, errno, "%s: chmod %o", path, (unsigned)mode);
}

static int open_folder(const char *data_dir, struct error *err)
{
    static const char *const files[] = {"tandem.db", "tandem.db-wal", "tandem.db-shm", "dev-token"};
    char path[PATH_MAX];
    umask(077); /* what is made from now on is nobody else's */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!fs_join(path, sizeof path, data_dir, files[i]) || set_mode(path, 0600, err) != 0) {
            return -1;
        }
    }
    if (!fs_join(path, sizeof path, data_dir, "jobs") || fs_mkdirs(path, 0711, err) != 0 ||
        set_mode(path, 0711, err) != 0) {
        return -1;
    }
    return set_mode(data_dir, 0711, err);
}

int run_as_new(struct run_as **out, const ServerConfig *config, const char *bin_dir,
               const char *data_dir, struct error *err)
{
    *out = NULL;
    if (!config || !config->n_run_as) {
        return 0;
    }
    for (size_t i = 0; i < config->n_run_as; i++) {
        if (check(bin_dir, data_dir, config->run_as[i], err) != 0) {
            return -1;
        }
    }
    if (open_folder(data_dir, err) != 0) {
        return -1;
    }
    struct run_as *r = calloc(1, sizeof *r);
    ASSERT(r);
    r->entries = config->run_as;
    r->num = config->n_run_as;
    *out = r;
    return 0;
}

void run_as_free(struct run_as *r)
{
    free(r);
}

const char *run_as_user(const struct run_as *r, const char *tenant)
{
    for (size_t i = 0; r && i < r->num; i++) {
        if (strcmp(r->entries[i]->tenant, tenant) == 0) {
            return r->entries[i]->user;
        }
    }
    return r ? NULL : "";
}
