#include "server/gangs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "server/launch/proc.h"

#define MARK "TANDEM_ATTEMPT="
#define ENVIRONMENT_MAX ((size_t)1 << 20)
#define PIDS_MAX 4096
#define GONE_MS 15000
#define OWNERS_MAX 64

/* TANDEM_ATTEMPT=JOB.ATTEMPT@DATA_DIR */
static bool is_mark(const char *variable, const char *data_dir)
{
    const char *at = strchr(variable, '@');
    return strncmp(variable, MARK, strlen(MARK)) == 0 && at && strcmp(at + 1, data_dir) == 0;
}

static bool is_marked(int64_t pid, const char *data_dir)
{
    char path[64], piece[4096];
    snprintf(path, sizeof path, "/proc/%lld/environ", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    struct buf all = {0};
    ssize_t n;
    while (all.len < ENVIRONMENT_MAX && (n = read(fd, piece, sizeof piece)) > 0) {
        buf_append(&all, piece, (size_t)n);
    }
    close(fd);
    bool found = false;
    for (size_t at = 0; at < all.len && !found; at += strlen(all.data + at) + 1) {
        found = is_mark(all.data + at, data_dir);
    }
    buf_free(&all);
    return found;
}

size_t gangs_find(const char *data_dir, int64_t *pids, size_t max)
{
    DIR *d = opendir("/proc");
    size_t num = 0;
    if (!d) {
        return 0;
    }
    for (struct dirent *e; (e = readdir(d));) {
        int64_t pid = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? strtoll(e->d_name, NULL, 10) : 0;
        struct proc_stat p;
        if (pid > 0 && pid != getpid() && proc_read(pid, &p) && p.state != 'Z' && p.state != 'X' &&
            is_marked(p.thread, data_dir)) {
            if (num < max) {
                pids[num] = pid;
            }
            num++;
        }
    }
    closedir(d);
    return num;
}

/* ---- of other users ---- */

static size_t read_owners(const char *data_dir, uid_t *uids, size_t max)
{
    char path[PATH_MAX];
    DIR *d = fs_join(path, sizeof path, data_dir, "jobs") ? opendir(path) : NULL;
    size_t num = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            st.st_uid == geteuid()) {
            continue;
        }
        size_t i = 0;
        while (i < num && uids[i] != st.st_uid) {
            i++;
        }
        if (i == num && num < max) {
            uids[num++] = st.st_uid;
        }
    }
    if (d) {
        closedir(d);
    }
    return num;
}

/* A tandem-node or rank of one of them; 0: none. */
static int64_t find_foreign(const char *data_dir)
{
    uid_t uids[OWNERS_MAX];
    size_t num = read_owners(data_dir, uids, OWNERS_MAX);
    DIR *d = num > 0 ? opendir("/proc") : NULL;
    int64_t found = 0;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        struct stat st;
        struct proc_stat p;
        int64_t pid = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? strtoll(e->d_name, NULL, 10) : 0;
        if (!pid || fstatat(dirfd(d), e->d_name, &st, 0) != 0 || !proc_read(pid, &p) ||
            (strcmp(p.name, "tandem-node") != 0 && strcmp(p.name, "tandem-rank") != 0)) {
            continue;
        }
        for (size_t i = 0; i < num; i++) {
            found = st.st_uid == uids[i] && p.state != 'Z' ? pid : found;
        }
    }
    if (d) {
        closedir(d);
    }
    return found;
}

int gangs_stop(const char *data_dir, size_t *num, struct error *err)
{
    int64_t *pids = calloc(PIDS_MAX, sizeof *pids);
    ASSERT(pids);
    int64_t end_ms = clock_mono_ms() + GONE_MS;
    size_t left;
    *num = 0;
    int64_t foreign = find_foreign(data_dir);
    if (foreign) {
        free(pids);
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "pid %lld is a gang of another user, one whose jobs are in %s: stop it "
                         "first",
                         (long long)foreign, data_dir);
    }
    /* Again until nothing is left: they may start others meanwhile. */
    while ((left = gangs_find(data_dir, pids, PIDS_MAX)) > 0 && clock_mono_ms() < end_ms) {
        *num = left > *num ? left : *num;
        for (size_t i = 0; i < left && i < PIDS_MAX; i++) {
            kill((pid_t)pids[i], SIGKILL);
        }
        clock_sleep_ms(20);
    }
    int64_t one = pids[0];
    free(pids);
    return left == 0 ? 0
                     : error_set(err, ERR_UNAVAILABLE,
                                 "%zu processes of this folder's jobs don't go (one is %lld)", left,
                                 (long long)one);
}
