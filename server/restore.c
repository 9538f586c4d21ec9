#include "server/restore.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "server/gangs.h"
#include "server/store/backup.h"
#include "server/store/store.h"

#define ATTEMPT_DIR "attempt-"

struct paths {
    char db[PATH_MAX], copy[PATH_MAX], aside[PATH_MAX], marker[PATH_MAX], jobs[PATH_MAX];
};

static int make_paths(struct paths *p, const char *data_dir, struct error *err)
{
    char name[64];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm utc;
    strftime(name, sizeof name, "tandem.db.before-%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    if (!fs_join(p->db, sizeof p->db - 8, data_dir, "tandem.db") ||
        !fs_join(p->copy, sizeof p->copy - 8, data_dir, "tandem.db.restore") ||
        !fs_join(p->aside, sizeof p->aside - 8, data_dir, name) ||
        !fs_join(p->marker, sizeof p->marker, data_dir, "restoring") ||
        !fs_join(p->jobs, sizeof p->jobs, data_dir, "jobs")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", data_dir);
    }
    return 0;
}

/* ---- what job folders show ---- */

/* A whole number from 1 up to max at the start of text that ends there; 0: it is none. */
static int64_t number_of(const char *text, int64_t max)
{
    char *end;
    if (*text < '1' || *text > '9') {
        return 0;
    }
    errno = 0;
    long long n = strtoll(text, &end, 10);
    return errno == 0 && !*end && n <= max ? n : 0;
}

/* logs/attempt-A, and checkpoints step-N-aA. */
static int32_t highest_attempt(const char *folder, const char *below)
{
    char path[PATH_MAX];
    DIR *d = fs_join(path, sizeof path, folder, below) ? opendir(path) : NULL;
    int64_t highest = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *a = strrchr(e->d_name, 'a');
        int64_t n = 0;
        if (strncmp(e->d_name, ATTEMPT_DIR, strlen(ATTEMPT_DIR)) == 0) {
            n = number_of(e->d_name + strlen(ATTEMPT_DIR), INT32_MAX - 1);
        } else if (strncmp(e->d_name, "step-", 5) == 0 && a && a[-1] == '-') {
            n = number_of(a + 1, INT32_MAX - 1);
        }
        highest = n > highest ? n : highest;
    }
    if (d) {
        closedir(d);
    }
    return (int32_t)highest;
}

static size_t look_at_folders(const char *jobs, struct store_seen **out)
{
    struct buf list = {0};
    DIR *d = opendir(jobs);
    for (struct dirent *e; d && (e = readdir(d));) {
        char folder[PATH_MAX], path[PATH_MAX];
        struct store_seen s = {.job = number_of(e->d_name, INT64_MAX / 2)};
        if (!s.job || !fs_join(folder, sizeof folder, jobs, e->d_name)) {
            continue;
        }
        int32_t logs = highest_attempt(folder, "logs"), ckpt = highest_attempt(folder, "ckpt");
        s.attempt = logs > ckpt ? logs : ckpt;
        s.exported = fs_join(path, sizeof path, folder, "export") && fs_exists(path);
        buf_append(&list, &s, sizeof s);
    }
    if (d) {
        closedir(d);
    }
    size_t num = list.len / sizeof **out;
    *out = (struct store_seen *)(void *)buf_take(&list);
    return num;
}

/* ---- files ---- */

static void remove_db(const char *path)
{
    static const char *const also[] = {"", "-journal", "-wal", "-shm"};
    char file[PATH_MAX + 16];
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        snprintf(file, sizeof file, "%s%s", path, also[i]);
        unlink(file);
    }
}

static int move_beside(const char *from, const char *to, const char *suffix, struct error *err)
{
    char old[PATH_MAX + 16], new[PATH_MAX + 16];
    snprintf(old, sizeof old, "%s%s", from, suffix);
    snprintf(new, sizeof new, "%s%s", to, suffix);
    /* A folder that later lets other users through (run_as) must not let them read this. */
    return (chmod(old, 0600) != 0 || rename(old, new) != 0) && errno != ENOENT
               ? error_errno(err, errno, "%s", old)
               : 0;
}

/* While the marker is there no server starts: what lies between its making and its end can be done
 * again from the start. It names what the database that is replaced is called meanwhile. */
static int put_in_place(const struct paths *p, const char *data_dir, struct error *err)
{
    if (fs_write_atomic(p->marker, p->aside, strlen(p->aside), 0600, err) != 0 ||
        /* What an old database that can't be read needs to be looked at later. */
        move_beside(p->db, p->aside, "-wal", err) != 0 ||
        move_beside(p->db, p->aside, "-shm", err) != 0 ||
        move_beside(p->db, p->aside, "", err) != 0) {
        return -1;
    }
    if (rename(p->copy, p->db) != 0) {
        return error_errno(err, errno, "%s", p->db);
    }
    if (fs_fsync_dir(data_dir, err) != 0) {
        return -1;
    }
    if (unlink(p->marker) != 0) {
        return error_errno(err, errno, "%s", p->marker);
    }
    return fs_fsync_dir(data_dir, err);
}

/* A restore was cut short after the old database had gone aside and before the copy was in its
 * place: back, so that what it knows (ids, revoked tokens) is asked again. */
static int take_back(const struct paths *p, struct error *err)
{
    char *aside;
    size_t len;
    if (!fs_exists(p->marker)) {
        return 0;
    }
    if (fs_read_file(p->marker, PATH_MAX - 1, &aside, &len, err) != 0) {
        return -1;
    }
    int rc = 0;
    bool in_place = fs_exists(p->db) && fs_exists(aside);
    if (len > 0 && !in_place) {
        rc = move_beside(aside, p->db, "", err);
        rc = rc == 0 ? move_beside(aside, p->db, "-shm", err) : rc;
        rc = rc == 0 ? move_beside(aside, p->db, "-wal", err) : rc;
    }
    free(aside);
    return rc;
}

static int make_copy(const char *file, const struct paths *p, struct error *err)
{
    struct store_copy copy;
    remove_db(p->copy);
    if (store_copy_file(file, p->copy, err) != 0) {
        return -1;
    }
    if (store_copy_check(p->copy, &copy, err) != 0) {
        return error_wrap(err, "%s, copied", file);
    }
    printf("%s: whole; schema %d, %lld jobs\n", file, copy.schema_version,
           (long long)copy.num_jobs);
    return 0;
}

/* Once no gang writes to the folders any more. */
static int make_safe(const struct paths *p, struct error *err)
{
    struct store_copy copy;
    struct store_seen *seen;
    size_t num = look_at_folders(p->jobs, &seen);
    int rc = store_restored(p->copy, fs_exists(p->db) ? p->db : NULL, seen, num, err);
    free(seen);
    return rc == 0 ? store_copy_check(p->copy, &copy, err) : -1;
}

int restore_run(const char *file, const char *data_dir, struct error *err)
{
    struct paths p;
    size_t num = 0;
    if (make_paths(&p, data_dir, err) != 0) {
        return -1;
    }
    bool good = make_copy(file, &p, err) == 0 && gangs_stop(data_dir, &num, err) == 0;
    if (num > 0) {
        printf("%zu processes of jobs were stopped\n", num);
    }
    if (!good || take_back(&p, err) != 0 || make_safe(&p, err) != 0) {
        remove_db(p.copy);
        return error_wrap(err, "nothing was replaced");
    }
    bool had = fs_exists(p.db);
    if (put_in_place(&p, data_dir, err) != 0) {
        return error_wrap(err, "the restore is not complete: run it again");
    }
    if (had) {
        printf("the database that was there is now %s\n", p.aside);
    }
    printf("%s is restored; start tandemd\n", p.db);
    return 0;
}

int restore_pending(const char *data_dir, struct error *err)
{
    struct paths p;
    if (make_paths(&p, data_dir, err) != 0) {
        return -1;
    }
    return fs_exists(p.marker) ? error_set(err, ERR_FAILED_PRECONDITION,
                                           "%s: a restore was cut short; run tandemd --restore "
                                           "FILE --data-dir %s again",
                                           data_dir, data_dir)
                               : 0;
}

int restore_needed(struct store *store, const char *data_dir, struct error *err)
{
    char jobs[PATH_MAX];
    int64_t last, highest = 0;
    DIR *d = fs_join(jobs, sizeof jobs, data_dir, "jobs") ? opendir(jobs) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t n = number_of(e->d_name, INT64_MAX / 2);
        highest = n > highest ? n : highest;
    }
    if (d) {
        closedir(d);
    }
    if (store_job_last(store, &last, err) != 0) {
        return -1;
    }
    if (highest <= last) {
        return 0;
    }
    return error_set(
        err, ERR_FAILED_PRECONDITION,
        "%s/%lld is there, but the last job that tandem.db has given a number is %lld: "
        "this database is new, or older than the folder. Run tandemd --restore FILE "
        "--data-dir %s with a backup, or with a copy of this tandem.db",
        jobs, (long long)highest, (long long)last, data_dir);
}
