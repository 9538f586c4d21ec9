#include "server/launch/proc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

bool proc_read(int64_t pid, struct proc_stat *out)
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
                     " %c %lld %lld %lld %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                     "%*d %lld",
                     &state, &ppid, &pgrp, &session, &start) != 5) {
        return false;
    }
    *out = (struct proc_stat){
        .pid = pid, .ppid = ppid, .session = session, .state = state, .start_time = start};
    return true;
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

size_t proc_descendants(int64_t root, int64_t since, int64_t *pids, size_t max)
{
    struct buf list = {0};
    read_all(&list);
    struct proc_stat *all = (struct proc_stat *)(void *)list.data;
    size_t num = list.len / sizeof *all;
    bool *ours = calloc(num + 1, sizeof *ours);
    size_t found = 0;
    for (bool grew = ours != NULL; grew;) {
        grew = false;
        for (size_t i = 0; i < num; i++) {
            if (ours[i] || all[i].pid == root || all[i].start_time < since) {
                continue;
            }
            bool is = all[i].session == root || all[i].ppid == root;
            for (size_t k = 0; k < num && !is; k++) {
                is = ours[k] && all[k].pid == all[i].ppid;
            }
            if (is) {
                ours[i] = grew = true;
                if (all[i].state != 'Z' && all[i].state != 'X') {
                    if (found < max) {
                        pids[found] = all[i].pid;
                    }
                    found++;
                }
            }
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
