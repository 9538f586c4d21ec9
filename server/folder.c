#include "server/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

/* The descriptor stays open: the lock goes with the process, however it ends. It is a record lock,
 * which a child doesn't inherit: one of flock is held on by what a killed server was just starting.
 */
static int lock_folder(const char *dir, struct error *err)
{
    char path[PATH_MAX], owner[32] = "";
    if (!fs_join(path, sizeof path, dir, "tandemd.lock")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", dir);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return error_errno(err, errno, "%s", path);
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &lock) != 0) {
        int e = errno;
        ssize_t n = pread(fd, owner, sizeof owner - 1, 0);
        owner[n > 0 ? n : 0] = 0;
        owner[strcspn(owner, "\n")] = 0;
        close(fd);
        if (e != EAGAIN && e != EACCES) {
            return error_errno(err, e, "%s", path);
        }
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: another tandemd (pid %s) is using this folder", dir,
                         *owner ? owner : "?");
    }
    char line[32];
    int n = snprintf(line, sizeof line, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, line, (size_t)n, 0) != n) {
        /* Only who holds the lock would be missing from a message. */
        return 0;
    }
    return 0;
}

int folder_open(const char *path, char *out, size_t size, struct error *err)
{
    char full[PATH_MAX];
    struct stat st;
    if (fs_mkdirs(path, 0700, err) != 0) {
        return -1;
    }
    if (!realpath(path, full) || stat(full, &st) != 0) {
        return error_errno(err, errno, "%s", path);
    }
    /* The socket in it is trusted. */
    if ((st.st_mode & 077) != 0 && chmod(full, 0700) != 0) {
        return error_errno(err, errno, "%s: chmod 0700", path);
    }
    if (snprintf(out, size, "%s", full) >= (int)size) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", full);
    }
    return lock_folder(full, err);
}

int folder_announce(const char *address, const char *token, struct error *err)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char dir[PATH_MAX], path[PATH_MAX], line[PATH_MAX];
    int n;
    if (base && base[0] == '/') {
        n = snprintf(dir, sizeof dir, "%s/tandem", base);
    } else if (home && home[0] == '/') {
        n = snprintf(dir, sizeof dir, "%s/.config/tandem", home);
    } else {
        return error_set(err, ERR_FAILED_PRECONDITION, "HOME is not set");
    }
    if (n >= (int)sizeof dir) {
        return error_set(err, ERR_INVALID_ARGUMENT, "the config folder's path is too long");
    }
    if (fs_mkdirs(dir, 0700, err) != 0) {
        return -1;
    }
    const char *const names[] = {"server", "token"};
    const char *const values[] = {address, token};
    for (int i = 0; i < 2; i++) {
        n = snprintf(line, sizeof line, "%s\n", values[i]);
        if (!fs_join(path, sizeof path, dir, names[i]) || n >= (int)sizeof line) {
            return error_set(err, ERR_INVALID_ARGUMENT, "the config folder's path is too long");
        }
        if (fs_write_atomic(path, line, (size_t)n, 0600, err) != 0) {
            return -1;
        }
    }
    return 0;
}
