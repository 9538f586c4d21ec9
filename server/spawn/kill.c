#include "server/spawn/spawn.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/launch/proc.h"

#define PIDS_MAX 4096

/* 1: the process of that number is that attempt's tandem-node; 0: it is gone; -1: it is something
 * else. */
static int look_at_node(const struct spawn_conf *conf, const struct spawn_request *r, char *why)
{
    struct proc_stat p;
    char link[64], exe[SPAWN_PATH_SIZE + 16] = "", want[SPAWN_PATH_SIZE];
    if (!proc_read(r->pid, &p) || p.start_time != r->start_time || p.state == 'Z' ||
        p.state == 'X') {
        return 0;
    }
    snprintf(link, sizeof link, "/proc/%lld/exe", (long long)p.thread);
    snprintf(want, sizeof want, "%.*s/tandem-node", SPAWN_PATH_SIZE - 32, conf->programs);
    ssize_t n = readlink(link, exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    size_t len = strlen(want);
    /* An upgrade has put another file in its place since it was started. */
    bool is_node =
        strncmp(exe, want, len) == 0 && (!exe[len] || strcmp(exe + len, " (deleted)") == 0);
    if (!is_node) {
        snprintf(why, SPAWN_WHY_SIZE, "pid %lld is no tandem-node of this user", (long long)r->pid);
        return -1;
    }
    return 1;
}

/* Without a tandem-node to vouch for its session, the mark alone tells whose a process is. */
static size_t find(const struct spawn_request *r, bool node_lives, const char *mark, int64_t *pids)
{
    return proc_descendants(node_lives ? r->pid : 0, r->start_time, mark, pids, PIDS_MAX);
}

int spawn_kill(const struct spawn_conf *conf, const struct spawn_request *r, char *why)
{
    static int64_t pids[PIDS_MAX];
    char mark[SPAWN_PATH_SIZE + 64];
    int lives = look_at_node(conf, r, why);
    if (lives < 0) {
        return -1;
    }
    spawn_run_mark(conf, r, mark, sizeof mark);
    if (lives && r->sig == SIGKILL) {
        kill((pid_t)r->pid, SIGSTOP); /* so that it starts no more */
    }
    size_t num = find(r, lives, mark, pids);
    for (size_t i = 0; r->sig && i < num && i < PIDS_MAX; i++) {
        kill((pid_t)pids[i], (int)r->sig);
    }
    if (lives && r->sig) {
        kill((pid_t)r->pid, (int)r->sig);
    }
    printf("%zu %lld\n", num + (size_t)lives, (long long)(lives ? r->pid : num ? pids[0] : 0));
    return fflush(stdout) == 0 ? 0 : -1;
}
