#include "base/roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/roots_link.h"

/* Links from folder to folder that are followed; the kernel allows 40 below each. */
#define HOPS_MAX 16
/* A rename next to a ".." makes the kernel ask for another try. */
#define TRIES_MAX 64
#define LIST_MAX_BYTES 600

static int outside(const struct roots *r, const char *path, struct error *err)
{
    char list[LIST_MAX_BYTES + 64];
    size_t n = 0, i = 0;
    for (; i < r->num && n + strlen(r->dirs[i]) + 2 < LIST_MAX_BYTES; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", r->dirs[i]);
    }
    if (i < r->num) {
        snprintf(list + n, sizeof list - n, "%s%zu folders more", i ? " and " : "", r->num - i);
    }
    return error_set(err, ERR_PERMISSION_DENIED, "%.*s: outside of what tenant %s may read: %s",
                     ERROR_TEXT_MAX / 4, path, r->tenant ? r->tenant : "?",
                     r->num ? list : "nothing, the server names no folder for it");
}

/* Behind dir in path, if path is dir or lies below it: "" or "a/b". Empty words and "." count for
 * nothing in both. */
static const char *below(const char *path, const char *dir)
{
    for (;;) {
        path = roots_skip(path);
        dir = roots_skip(dir);
        if (!*dir) {
            return path;
        }
        size_t n = strcspn(dir, "/");
        if (strncmp(path, dir, n) != 0 || (path[n] && path[n] != '/')) {
            return NULL;
        }
        path += n;
        dir += n;
    }
}

/* The folder with the longest name that path lies below. */
static const char *match(const struct roots *r, const char *path, const char **rest)
{
    const char *best = NULL;
    size_t best_len = 0;
    for (size_t i = 0; i < r->num && path[0] == '/'; i++) {
        const char *behind = below(path, r->dirs[i]);
        if (behind && (!best || (size_t)(behind - path) > best_len)) {
            best = r->dirs[i];
            best_len = (size_t)(behind - path);
            *rest = behind;
        }
    }
    return best;
}

static int open_beneath(int dir, const char *rest, int flags)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    for (int i = 0; i < TRIES_MAX && fd < 0; i++) {
        fd = syscall(SYS_openat2, dir, *rest ? rest : ".", &how, sizeof how);
        if (fd < 0 && errno != EAGAIN && errno != EINTR) {
            break;
        }
    }
    return (int)fd;
}

static int refuse_errno(const struct roots *r, const char *path, int errnum, struct error *err)
{
    if (errnum == ENOSYS || errnum == EPERM) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: this host's kernel has no openat2 (Linux 5.6, and not forbidden by "
                         "its container), so paths can't be held below the folders that tenant %s "
                         "may read",
                         path, r->tenant ? r->tenant : "?");
    }
    if ((errnum == ENOENT || errnum == ENOTDIR) && r->note) {
        r->note(r->ctx, path, NULL);
    }
    return error_errno(err, errnum, "%s", path);
}

/* The kernel says that the way leads out; where a link leads to another folder it goes on there. */
static int open_limited(const struct roots *r, const char *path, int flags, struct error *err)
{
    char at[PATH_MAX], next[PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%.200s...: longer than a path can be", path);
    }
    for (int i = 0; i < HOPS_MAX; i++) {
        const char *rest, *root = match(r, at, &rest);
        if (!root) {
            return outside(r, path, err);
        }
        int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0) {
            return error_errno(err, errno, "%s (a folder that tenant %s may read)", root,
                               r->tenant ? r->tenant : "?");
        }
        int fd = open_beneath(dir, rest, flags), errnum = errno;
        bool leads_out = fd < 0 && errnum == EXDEV;
        bool follow = leads_out && roots_follow(dir, root, rest, next);
        close(dir);
        if (!leads_out) {
            return fd >= 0 ? fd : refuse_errno(r, path, errnum, err);
        }
        if (!follow) {
            break;
        }
        memcpy(at, next, sizeof at);
    }
    return outside(r, path, err);
}

/* HIDDEN/jobs/N of a path that names it by its words. */
static bool named_job(const char *hidden, const char *path, char *out, size_t size)
{
    const char *rest = path[0] == '/' ? below(path, hidden) : NULL;
    if (!rest || strncmp(rest, "jobs/", 5) != 0) {
        return false;
    }
    const char *number = roots_skip(rest + 5);
    size_t len = strspn(number, "0123456789");
    int n = snprintf(out, size, "%s/jobs/%.*s", hidden, (int)len, number);
    return len > 0 && number[len] == '/' && n > 0 && (size_t)n < size;
}

/* By where the open file really lies. */
static int check_hidden(const struct roots *r, int fd, const char *path, struct error *err)
{
    char link[48], real[PATH_MAX], job[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 0) {
        return error_errno(err, errno, "%.*s: %s", ERROR_TEXT_MAX / 4, path, link);
    }
    real[n] = 0;
    if (!below(real, r->hidden) ||
        (named_job(r->hidden, path, job, sizeof job) && below(real, job))) {
        return 0;
    }
    return error_set(err, ERR_PERMISSION_DENIED,
                     "%.*s: leads into the server's data folder, which jobs can't read",
                     ERROR_TEXT_MAX / 4, path);
}

int roots_open(const struct roots *r, const char *path, struct stat *st, struct error *err)
{
    static const struct roots anywhere;
    struct stat own_st;
    struct error own_err;
    st = st ? st : &own_st;
    err = err ? err : &own_err;
    r = r ? r : &anywhere;
    int fd;
    if (r->limited) {
        /* O_NONBLOCK: a FIFO must not hang us before fstat says what it is. */
        fd = open_limited(r, path, O_RDONLY | O_NONBLOCK, err);
        if (fd >= 0 && fs_check_regular(fd, path, st, err) != 0) {
            close(fd);
            fd = -1;
        }
    } else {
        fd = fs_open_regular(path, st, err);
        if (fd < 0 && err->code == ERR_NOT_FOUND && r->note) {
            r->note(r->ctx, path, NULL);
        }
    }
    if (fd >= 0 && r->hidden && check_hidden(r, fd, path, err) != 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0 && r->note) {
        r->note(r->ctx, path, st);
    }
    return fd;
}

int roots_read_file(const struct roots *r, const char *path, size_t max_bytes, char **out,
                    size_t *len, struct error *err)
{
    struct stat st;
    int fd = roots_open(r, path, &st, err);
    if (fd < 0) {
        return -1;
    }
    int rc = fs_read_open(fd, path, max_bytes, out, len, err);
    close(fd);
    return rc;
}

int roots_check_dir(const struct roots *r, const char *path, struct error *err)
{
    struct stat st;
    int fd = r && r->limited ? open_limited(r, path, O_PATH, err) : open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return r && r->limited ? -1 : error_errno(err, errno, "%s", path);
    }
    int rc = fstat(fd, &st) == 0 ? 0 : error_errno(err, errno, "%s", path);
    close(fd);
    if (rc == 0 && !S_ISDIR(st.st_mode)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not a folder", path);
    }
    return rc;
}
