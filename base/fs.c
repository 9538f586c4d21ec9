#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fs_check_regular(int fd, const char *path, struct stat *st, struct error *err)
{
    if (fstat(fd, st) != 0) {
        return error_errno(err, errno, "%s", path);
    }
    if (!S_ISREG(st->st_mode)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not a regular file", path);
    }
    return 0;
}

int fs_open_regular(const char *path, struct stat *st, struct error *err)
{
    /* O_NONBLOCK: a FIFO must not hang us before fstat says what it is. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_errno(err, errno, "%s", path);
    }
    if (fs_check_regular(fd, path, st, err) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int fs_open_append(const char *path, mode_t mode, struct error *err)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0) {
        return error_errno(err, errno, "%s", path);
    }
    if (fs_check_regular(fd, path, &st, err) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int fs_read_open(int fd, const char *path, size_t max_bytes, char **out, size_t *len,
                 struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return error_errno(err, errno, "%s", path);
    }
    if ((uint64_t)st.st_size > max_bytes) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: %lld bytes; at most %zu are read", path,
                         (long long)st.st_size, max_bytes);
    }
    size_t size = (size_t)st.st_size;
    char *data = malloc(size + 1);
    if (!data) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    size_t got = 0;
    while (got < size) {
        ssize_t n = read(fd, data + got, size - got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            free(data);
            return error_errno(err, errno, "%s: read", path);
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    data[got] = 0;
    *out = data;
    *len = got;
    return 0;
}

int fs_read_file(const char *path, size_t max_bytes, char **out, size_t *len, struct error *err)
{
    struct stat st;
    int fd = fs_open_regular(path, &st, err);
    if (fd < 0) {
        return -1;
    }
    int rc = fs_read_open(fd, path, max_bytes, out, len, err);
    close(fd);
    return rc;
}

int fs_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static void parent_dir(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        snprintf(out, size, ".");
    } else if (slash == path) {
        snprintf(out, size, "/");
    } else {
        snprintf(out, size, "%.*s", (int)(slash - path), path);
    }
}

int fs_fsync_dir(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return error_errno(err, errno, "%s", path);
    }
    int rc = fsync(fd) == 0 ? 0 : error_errno(err, errno, "%s: fsync", path);
    close(fd);
    return rc;
}

int fs_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct error *err)
{
    char tmp[PATH_MAX], dir[PATH_MAX];
    if (snprintf(tmp, sizeof tmp, "%s.tmp%d", path, (int)getpid()) >= (int)sizeof tmp) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", path);
    }
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0) { /* the folder's fault: nobody asked for a file of that other name */
        return error_errno(err, errno, "%s", path);
    }
    int rc = 0;
    if (fs_write_all(fd, data, len) != 0 || fsync(fd) != 0) {
        rc = error_errno(err, errno, "%s: write", tmp);
    }
    if (close(fd) != 0 && rc == 0) {
        rc = error_errno(err, errno, "%s: close", tmp);
    }
    if (rc == 0 && rename(tmp, path) != 0) {
        rc = error_errno(err, errno, "%s: rename", path);
    }
    if (rc != 0) {
        unlink(tmp);
        return rc;
    }
    parent_dir(path, dir, sizeof dir);
    return fs_fsync_dir(dir, err);
}

int fs_mkdirs(const char *path, mode_t mode, struct error *err)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        return error_set(err, ERR_INVALID_ARGUMENT, "\"%s\": not a usable path", path);
    }
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0) {
            continue;
        }
        char keep = part[i];
        part[i] = 0;
        if (mkdir(part, mode) != 0 && errno != EEXIST) {
            return error_errno(err, errno, "make folder %s", part);
        }
        part[i] = keep;
    }
    struct stat st;
    if (stat(path, &st) != 0) {
        return error_errno(err, errno, "%s", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return error_set(err, ERR_ALREADY_EXISTS, "%s: exists and is not a folder", path);
    }
    return 0;
}

/* Depth of folders that are removed: each holds a descriptor open. */
#define REMOVE_DEPTH_MAX 64

static int remove_at(int dir, const char *name, int depth);

/* What lies in an open folder. Takes fd. -1: errno says why. */
static int remove_inside(int fd, int depth)
{
    DIR *d = fdopendir(fd);
    if (!d) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    int rc = 0, e = 0;
    for (struct dirent *entry; rc == 0 && (errno = 0, entry = readdir(d));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = remove_at(dirfd(d), entry->d_name, depth);
        }
    }
    e = errno;
    closedir(d);
    errno = e;
    return rc == 0 && e == 0 ? 0 : -1;
}

/* By open folders, never by a path: who may write there could swap a folder for a link. */
static int remove_at(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno != EISDIR) {
        return -1;
    }
    if (depth == 0) {
        errno = ELOOP;
        return -1;
    }
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : -1;
    }
    if (remove_inside(fd, depth - 1) != 0) {
        return -1;
    }
    return unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int fs_remove_tree_at(int dir, const char *name, struct error *err)
{
    return remove_at(dir, name, REMOVE_DEPTH_MAX) == 0 ? 0
                                                       : error_errno(err, errno, "remove %s", name);
}

int fs_remove_tree(const char *path, struct error *err)
{
    return fs_remove_tree_at(AT_FDCWD, path, err);
}

bool fs_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool fs_join(char *out, size_t size, const char *dir, const char *name)
{
    int n = snprintf(out, size, "%s/%s", dir, name);
    return n >= 0 && (size_t)n < size;
}

int fs_self_dir(char *out, size_t size, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n < 0) {
        return error_errno(err, errno, "/proc/self/exe");
    }
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash) {
        *slash = 0;
    }
    return 0;
}
