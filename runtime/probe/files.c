#include "runtime/probe/files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* A filesystem's clock ticks coarsely: a file that was changed a moment ago may change again
 * without a trace in its times. Such a one is known by no time at all, so it is read again. */
#define FRESH_NS ((int64_t)100 * 1000 * 1000)

static int64_t as_ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* st NULL: not there. Borrows path. */
static void identify(FileIdentity *f, const char *path, const struct stat *st)
{
    file_identity__init(f);
    f->path = (char *)(uintptr_t)path;
    if (!st) {
        f->has_absent = f->absent = 1;
        return;
    }
    f->has_device = f->has_inode = f->has_size_bytes = f->has_mtime_ns = f->has_ctime_ns = 1;
    f->device = (uint64_t)st->st_dev;
    f->inode = (uint64_t)st->st_ino;
    f->size_bytes = (int64_t)st->st_size;
    f->mtime_ns = as_ns(&st->st_mtim);
    f->ctime_ns = as_ns(&st->st_ctim);
}

static void add(void *ctx, const char *path, const struct stat *st)
{
    ProbeReply *reply = ctx;
    FileIdentity *f = malloc(sizeof *f);
    FileIdentity **files = realloc(reply->files, (reply->n_files + 1) * sizeof *files);
    ASSERT(f && files);
    identify(f, path, st);
    f->path = strdup(path);
    ASSERT(f->path);
    if (clock_wall_us() * 1000 - f->ctime_ns < FRESH_NS) {
        f->has_ctime_ns = 0;
        f->ctime_ns = 0;
    }
    reply->files = files;
    reply->files[reply->n_files++] = f;
}

struct roots files_roots(const ProbeRequest *request, ProbeReply *reply)
{
    const Roots *allowed = request->roots;
    struct roots r = {.hidden = request->private_dir, .note = reply ? add : NULL, .ctx = reply};
    if (allowed) {
        r.limited = true;
        r.tenant = allowed->tenant;
        r.dirs = (const char *const *)allowed->read;
        r.num = allowed->n_read;
    }
    return r;
}

static bool unchanged(const struct roots *roots, const FileIdentity *known)
{
    struct stat st;
    struct error err = {0};
    FileIdentity now;
    int fd = roots_open(roots, known->path ? known->path : "", &st, &err);
    if (fd < 0) {
        return known->absent && err.code == ERR_NOT_FOUND;
    }
    close(fd);
    identify(&now, known->path, &st);
    return !known->absent && now.device == known->device && now.inode == known->inode &&
           now.size_bytes == known->size_bytes && now.mtime_ns == known->mtime_ns &&
           now.ctime_ns == known->ctime_ns;
}

bool files_unchanged(const struct roots *roots, FileIdentity *const *known, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        if (!unchanged(roots, known[i])) {
            return false;
        }
    }
    return true;
}
