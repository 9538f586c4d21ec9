#include "runtime/node/proctree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define MOST_CHILDREN 1024

int proctree_adopt_orphans(struct error *err)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return error_errno(err, errno, "become the parent of orphans");
    }
    return 0;
}

/* Appends the pids of a "children" file. -1: the kernel doesn't offer it. */
static int read_children(const char *path, pid_t *pids, int max, int *num)
{
    FILE *f = fopen(path, "re");
    if (!f) {
        return -1;
    }
    int pid;
    while (*num < max && fscanf(f, "%d", &pid) == 1) {
        pids[(*num)++] = pid;
    }
    fclose(f);
    return 0;
}

const char *proctree_stat(const char *pid, char line[PROCTREE_STAT_MAX])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    ssize_t n = read(fd, line, PROCTREE_STAT_MAX - 1);
    close(fd);
    line[n > 0 ? n : 0] = 0;
    /* The name before it may hold anything. */
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[1] == ' ' ? name_end + 2 : NULL;
}

/* 0: gone. */
static pid_t parent_of(const char *pid)
{
    char line[PROCTREE_STAT_MAX];
    const char *fields = proctree_stat(pid, line);
    int parent = 0;
    return fields && sscanf(fields, "%*c %d", &parent) == 1 ? parent : 0;
}

/* Where the kernel has no "children" files. */
static int scan_proc(pid_t *pids, int max)
{
    DIR *proc = opendir("/proc");
    int num = 0;
    for (struct dirent *e; proc && num < max && (e = readdir(proc)) != NULL;) {
        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name) == getpid()) {
            pids[num++] = atoi(e->d_name);
        }
    }
    if (proc) {
        closedir(proc);
    }
    return num;
}

int proctree_children(pid_t *pids, int max)
{
    DIR *tasks = opendir("/proc/self/task");
    int num = 0, rc = tasks ? 0 : -1;
    for (struct dirent *e; rc == 0 && (e = readdir(tasks)) != NULL;) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%.20s/children", e->d_name);
        if (isdigit((unsigned char)e->d_name[0])) {
            rc = read_children(path, pids, max, &num);
        }
    }
    if (tasks) {
        closedir(tasks);
    }
    return rc == 0 ? num : scan_proc(pids, max);
}

static void wait_for_end(pid_t pid, int64_t timeout_ms)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) {
        return;
    }
    struct pollfd end = {.fd = fd, .events = POLLIN};
    poll(&end, 1, (int)timeout_ms);
    close(fd);
}

int proctree_kill_all(int64_t timeout_ms, int *num_killed, struct error *err)
{
    int64_t until = clock_mono_ms() + timeout_ms;
    *num_killed = 0;
    for (;;) {
        pid_t pids[MOST_CHILDREN], pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0 && errno == ECHILD) {
            return 0;
        }
        int num = proctree_children(pids, MOST_CHILDREN);
        for (int i = 0; i < num; i++) {
            kill(pids[i], SIGKILL);
        }
        int64_t left = until - clock_mono_ms();
        if (left <= 0) {
            return error_set(err, ERR_DEADLINE_EXCEEDED,
                             "pid %d can't be killed (one of %d processes still there)",
                             num ? (int)pids[0] : 0, num);
        }
        /* Their own children become ours as they end: the next round's. */
        for (int i = 0; i < num; i++) {
            wait_for_end(pids[i], left);
        }
        for (int i = 0; i < num; i++) {
            *num_killed += waitpid(pids[i], NULL, WNOHANG) == pids[i];
        }
    }
}
