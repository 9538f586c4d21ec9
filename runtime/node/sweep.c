#include "runtime/node/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/ckpt/ckpt.h"

/* In the job's folder itself: config.json.tmpPID, an export that wasn't finished. */
static int sweep_temporary(const char *job_dir, struct error *err)
{
    char path[PATH_MAX];
    DIR *dir = opendir(job_dir);
    if (!dir) {
        return error_errno(err, errno, "%s", job_dir);
    }
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(dir)) != NULL;) {
        if (strstr(e->d_name, ".tmp") && fs_join(path, sizeof path, job_dir, e->d_name)) {
            rc = fs_remove_tree(path, err);
        }
    }
    closedir(dir);
    return rc;
}

int sweep_job(const char *job_dir, struct error *err)
{
    char ckpt[PATH_MAX];
    if (!fs_join(ckpt, sizeof ckpt, job_dir, "ckpt")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", job_dir);
    }
    if (fs_mkdirs(ckpt, 0770, err) != 0 || ckpt_sweep(ckpt, err) != 0) {
        return -1;
    }
    return sweep_temporary(job_dir, err);
}
