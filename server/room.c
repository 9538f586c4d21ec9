#include "server/room.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/log.h"

/* Kept for what runs: this, or a fiftieth of a small disk. New work begins again at twice that, so
 * that it doesn't start and stop with every step. */
#define RESERVE_BYTES (64.0 * 1048576)
#define RESERVE_SHARE 50.0

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
    r->out = no_names || left < (before ? 2 * reserve : reserve);
    snprintf(r->text, sizeof r->text,
             "the disk is full: %s free on that of %s, where %.3g MiB are kept for jobs that run; "
             "new work waits for room",
             no_names         ? "no inodes are"
             : left < 1048576 ? "less than a MiB is"
                              : "too little is",
             r->dir, reserve / 1048576);
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
