#include "server/gangs.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/launch/proc.h"

#define MARK "TANDEM_ATTEMPT="
#define ENVIRONMENT_MAX ((size_t)1 << 20)
#define PIDS_MAX 4096
#define GONE_MS 15000

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
            is_marked(pid, data_dir)) {
            if (num < max) {
                pids[num] = pid;
            }
            num++;
        }
    }
    closedir(d);
    return num;
}

int gangs_stop(const char *data_dir, size_t *num, struct error *err)
{
    int64_t *pids = calloc(PIDS_MAX, sizeof *pids);
    ASSERT(pids);
    int64_t end_ms = clock_mono_ms() + GONE_MS;
    size_t left;
    *num = 0;
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
