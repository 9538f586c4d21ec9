#include "server/launch/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"

#define ENVIRONMENT_MAX ((size_t)1 << 20)

/* The line of a process or of one thread, by its number. */
static bool read_line(int64_t pid, struct proc_stat *out, long long *num_threads)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "re");
    if (!f) {
        return false;
    }
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    /* The name in brackets may hold anything, brackets too. */
    char *p = strrchr(line, ')');
    long long ppid, pgrp, session, start;
    char state;
    if (!p || sscanf(p + 1,
                     " %c %lld %lld %lld %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %lld "
                     "%*d %lld",
                     &state, &ppid, &pgrp, &session, num_threads, &start) != 6) {
        return false;
    }
    *out = (struct proc_stat){.pid = pid,
                              .thread = pid,
                              .ppid = ppid,
                              .session = session,
                              .state = state,
                              .start_time = start};
    const char *name = strchr(line, '(');
    for (size_t i = 0; name && ++name < p && i < sizeof out->name - 1; i++) {
        out->name[i] = *name;
        if (!isprint((unsigned char)*name)) {
            out->name[i] = '?';
        }
    }
    return true;
}

/* Its first thread has ended; takes one that hasn't. */
static void take_living_thread(struct proc_stat *p)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)p->pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && p->thread == p->pid && (e = readdir(d));) {
        struct proc_stat t;
        long long num;
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
            read_line(strtoll(e->d_name, NULL, 10), &t, &num) && t.state != 'Z' && t.state != 'X') {
            p->thread = t.pid;
            p->state = t.state;
        }
    }
    if (d) {
        closedir(d);
    }
}

bool proc_read(int64_t pid, struct proc_stat *out)
{
    long long num_threads;
    if (!read_line(pid, out, &num_threads)) {
        return false;
    }
    if (out->state == 'Z' && num_threads > 1) {
        take_living_thread(out);
    }
    return true;
}

/* Is mark, whole, one of the variables that the process was started with? */
static bool has_mark(int64_t pid, const char *mark)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/environ", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    struct buf all = {0};
    char piece[4096];
    ssize_t n;
    while (all.len < ENVIRONMENT_MAX && (n = read(fd, piece, sizeof piece)) > 0) {
        buf_append(&all, piece, (size_t)n);
    }
    close(fd);
    size_t len = strlen(mark) + 1; /* with its end */
    const char *at = (const char *)all.data, *end = at + all.len;
    bool found = false;
    while (at && !found && (size_t)(end - at) >= len) {
        found = memcmp(at, mark, len) == 0;
        const char *next = memchr(at, 0, (size_t)(end - at));
        at = next ? next + 1 : NULL;
    }
    buf_free(&all);
    return found;
}

/* All processes of our user, as an array of struct proc_stat. */
static void read_all(struct buf *out)
{
    DIR *d = opendir("/proc");
    if (!d) {
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        struct proc_stat p;
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
            fstatat(dirfd(d), e->d_name, &st, 0) == 0 && st.st_uid == geteuid() &&
            proc_read(strtoll(e->d_name, NULL, 10), &p)) {
            buf_append(out, &p, sizeof p);
        }
    }
    closedir(d);
}

/* Marks what descends from those that are marked already. */
static void spread(const struct proc_stat *all, bool *ours, size_t num, int64_t since)
{
    for (bool grew = true; grew;) {
        grew = false;
        for (size_t i = 0; i < num; i++) {
            bool may_be = all[i].start_time >= since && all[i].pid != getpid();
            for (size_t k = 0; k < num && may_be && !ours[i]; k++) {
                if (ours[k] && all[k].pid == all[i].ppid) {
                    ours[i] = grew = true;
                }
            }
        }
    }
}

size_t proc_descendants(int64_t root, int64_t since, const char *mark, int64_t *pids, size_t max)
{
    struct buf list = {0};
    struct proc_stat top;
    /* If the number is another's by now, then nobody is left in its session either. */
    bool has_root = root > 0 && (!proc_read(root, &top) || top.start_time == since);
    read_all(&list);
    struct proc_stat *all = (struct proc_stat *)(void *)list.data;
    size_t num = list.len / sizeof *all, found = 0;
    bool *ours = calloc(num + 1, sizeof *ours);
    ASSERT(ours);
    for (size_t i = 0; i < num; i++) {
        ours[i] = all[i].pid != root && all[i].pid != getpid() && all[i].start_time >= since &&
                  ((has_root && (all[i].session == root || all[i].ppid == root)) ||
                   (all[i].state != 'Z' && has_mark(all[i].thread, mark)));
    }
    spread(all, ours, num, since);
    for (size_t i = 0; i < num; i++) {
        if (ours[i] && all[i].state != 'Z' && all[i].state != 'X') {
            if (found < max) {
                pids[found] = all[i].pid;
            }
            found++;
        }
    }
    free(ours);
    buf_free(&list);
    return found;
}

void proc_boot_id(char *out, size_t size)
{
    out[0] = 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        if (fgets(out, (int)size, f)) {
            out[strcspn(out, "\n")] = 0;
        }
        fclose(f);
    }
}
