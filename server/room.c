#include "server/room.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fs.h"
#include "base/log.h"

/* Kept for what runs: this, or a fiftieth of a small disk. New work begins again at twice that, so
 * that it doesn't start and stop with every step. */
#define RESERVE_BYTES (64.0 * 1048576)
#define RESERVE_SHARE 50.0
/* The same of what the database's files may grow by, where a limit of file sizes (ulimit -f,
 * LimitFSIZE=) holds: below it nothing can be stored, as on a full disk. */
#define RESERVE_FILE_BYTES (16.0 * 1048576)

struct room {
    char dir[PATH_MAX];
    pthread_mutex_t lock;
    bool out; /* guarded by lock, as is text */
    char text[PATH_MAX + 200];
};

int room_new(struct room **out, const char *data_dir, struct error *err)
{
    struct room *r = calloc(1, sizeof *r);
    if (!r) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    snprintf(r->dir, sizeof r->dir, "%s", data_dir);
    pthread_mutex_init(&r->lock, NULL);
    room_look(r);
    *out = r;
    return 0;
}

void room_free(struct room *r)
{
    if (r) {
        pthread_mutex_destroy(&r->lock);
        free(r);
    }
}

/* True: the limit is near, and text says which. */
static bool is_limited(const struct room *r, double reserve, char *text, size_t size)
{
    static const char *const names[] = {"tandem.db", "tandem.db-wal"};
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        struct stat st;
        double have = fs_join(path, sizeof path, r->dir, names[i]) && stat(path, &st) == 0
                          ? (double)st.st_size
                          : 0;
        if ((double)limit.rlim_cur - have < reserve) {
            snprintf(
                text, size,
                "files may have at most %.3g MiB here (ulimit -f, LimitFSIZE=), and %s has %.3g, "
                "where %.3g MiB are kept for jobs that run: raise that limit; new work waits until "
                "then",
                (double)limit.rlim_cur / 1048576, path, have / 1048576,
                RESERVE_FILE_BYTES / 1048576);
            return true;
        }
    }
    return false;
}

bool room_look(struct room *r)
{
    struct statvfs s;
    if (statvfs(r->dir, &s) != 0) {
        return false;
    }
    double unit = (double)s.f_frsize, left = (double)s.f_bavail * unit;
    double reserve = (double)s.f_blocks * unit / RESERVE_SHARE;
    reserve = reserve < RESERVE_BYTES ? reserve : RESERVE_BYTES;
    bool no_names = s.f_files > 0 && s.f_favail == 0;
    pthread_mutex_lock(&r->lock);
    bool before = r->out;
    bool full = no_names || left < (before ? 2 * reserve : reserve);
    snprintf(r->text, sizeof r->text,
             "the disk is full: %s free on that of %s, where %.3g MiB are kept for jobs that run; "
             "new work waits for room",
             no_names         ? "no inodes are"
             : left < 1048576 ? "less than a MiB is"
                              : "too little is",
             r->dir, reserve / 1048576);
    r->out = full || is_limited(r, before ? 2 * RESERVE_FILE_BYTES : RESERVE_FILE_BYTES, r->text,
                                sizeof r->text);
    bool changed = r->out != before;
    pthread_mutex_unlock(&r->lock);
    if (changed && r->out) {
        log_error("%s", r->text);
    } else if (changed) {
        log_info("there is room again on the disk of %s", r->dir);
    }
    return changed;
}

bool room_is_out(struct room *r, char *why, size_t size)
{
    if (!r) {
        return false;
    }
    pthread_mutex_lock(&r->lock);
    bool out = r->out;
    if (out && why) {
        snprintf(why, size, "%s", r->text);
    }
    pthread_mutex_unlock(&r->lock);
    return out;
}
