#include "runtime/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/ckpt/folder.h"

/* Next checkpoint folder of an open listing: 1 = there is one, 0 = no more. */
static int next_folder(DIR *list, const char *parent, struct folder_name *name, char *path,
                       size_t size, struct error *err)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(list);
        if (!entry) {
            return errno == 0 ? 0 : error_errno(err, errno, "list %s", parent);
        }
        if (folder_parse(entry->d_name, name)) {
            return folder_path(parent, name, path, size, err) == 0 ? 1 : -1;
        }
    }
}

/* *list is NULL where the folder isn't there yet. */
static int open_list(const char *parent, DIR **list, struct error *err)
{
    *list = opendir(parent);
    return *list || errno == ENOENT ? 0 : error_errno(err, errno, "%s", parent);
}

int ckpt_newest(const char *parent, char *dir, size_t dir_size, int64_t *step, struct error *err)
{
    DIR *list;
    struct folder_name name, best = {-1, -1, false};
    char path[PATH_MAX];
    dir[0] = 0;
    *step = 0;
    if (open_list(parent, &list, err) != 0) {
        return -1;
    }
    int rc = 0;
    while (list && (rc = next_folder(list, parent, &name, path, sizeof path, err)) > 0) {
        bool newer =
            name.step > best.step || (name.step == best.step && name.attempt > best.attempt);
        if (name.temporary || !newer || !folder_complete(path)) {
            continue;
        }
        if (strlen(path) >= dir_size) {
            rc = error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", path);
            break;
        }
        best = name;
        snprintf(dir, dir_size, "%s", path);
        *step = name.step;
    }
    if (list) {
        closedir(list);
    }
    return rc;
}

int ckpt_sweep(const char *parent, struct error *err)
{
    DIR *list;
    struct folder_name name;
    char path[PATH_MAX];
    if (open_list(parent, &list, err) != 0) {
        return -1;
    }
    int rc = 0;
    while (list && (rc = next_folder(list, parent, &name, path, sizeof path, err)) > 0) {
        bool of_use = folder_complete(path) || folder_damaged(path);
        if ((name.temporary || !of_use) && fs_remove_tree(path, err) != 0) {
            rc = -1;
            break;
        }
    }
    if (list) {
        closedir(list);
    }
    return rc;
}
