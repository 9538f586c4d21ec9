/* Launcher of this host: posix_spawn of tandem-node in a session of its own. */
#include "server/launch/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fs.h"
#include "base/log.h"
#include "server/launch/cgroup.h"
#include "server/launch/proc.h"
#include "server/launch/spawn.h"

#define PIDS_MAX 4096
/* In the environment of all processes of an attempt. */
#define MARK_NAME "TANDEM_ATTEMPT"

struct local {
    struct launcher base; /* first */
    const char *bin_dir;  /* borrowed */
    char node_path[PATH_MAX], spawn_path[PATH_MAX];
    char data_dir[PATH_MAX];
    char boot_id[48];
    struct cgroup groups;
};

extern char **environ;

static void make_mark(const struct local *l, int64_t job_id, int32_t attempt, char *out,
                      size_t size)
{
    snprintf(out, size, MARK_NAME "=%lld.%d@%s", (long long)job_id, attempt, l->data_dir);
}

/* Ours with the mark, which comes first. The caller frees the array. */
static char **environment(char *mark)
{
    size_t num = 0, at = 0;
    while (environ[num]) {
        num++;
    }
    char **out = calloc(num + 2, sizeof *out);
    ASSERT(out);
    out[at++] = mark;
    for (size_t i = 0; i < num; i++) {
        if (strncmp(environ[i], MARK_NAME "=", sizeof MARK_NAME) != 0) {
            out[at++] = environ[i];
        }
    }
    return out;
}

/* log_fd < 0: the program has its own log, and only what it refuses goes where ours goes. */
static int spawn(const char *path, char *const *argv, char *const *env, int log_fd, int ticket_fd,
                 pid_t *pid, struct error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    child_attributes(&attr, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (log_fd >= 0) {
        posix_spawn_file_actions_adddup2(&actions, log_fd, 1);
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
    }
    posix_spawn_file_actions_adddup2(&actions, ticket_fd, 3);
    int rc = posix_spawn(pid, path, &actions, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 ? 0 : error_errno(err, rc, "start %s", path);
}

static int spawn_node(const struct local *l, int64_t job_id, int32_t attempt, const char *user,
                      const char *log_path, int ticket_fd, pid_t *pid, struct error *err)
{
    char mark[PATH_MAX + 64], job[24], number[16];
    make_mark(l, job_id, attempt, mark, sizeof mark);
    snprintf(job, sizeof job, "%lld", (long long)job_id);
    snprintf(number, sizeof number, "%d", attempt);
    if (*user) {
        char *argv[] = {
            (char *)(uintptr_t)l->spawn_path, "node", (char *)(uintptr_t)user, job, number, NULL};
        return spawn(l->spawn_path, argv, environ, -1, ticket_fd, pid, err);
    }
    /* Here, not in the child, which the whole thread waits for: a FIFO would stop it for ever. */
    int log_fd = fs_open_append(log_path, 0600, err);
    if (log_fd < 0) {
        return error_wrap(err, "the log of tandem-node");
    }
    char *argv[] = {(char *)(uintptr_t)l->node_path, "--job", job, "--attempt", number, NULL};
    char **env = environment(mark);
    int rc = spawn(l->node_path, argv, env, log_fd, ticket_fd, pid, err);
    free(env);
    close(log_fd);
    return rc;
}

static int make_log_folder(const char *log_path, struct error *err)
{
    char logs[PATH_MAX];
    const char *slash = strrchr(log_path, '/');
    snprintf(logs, sizeof logs, "%.*s", slash ? (int)(slash - log_path) : 0, log_path);
    return fs_mkdirs(logs, 0700, err);
}

static int local_start(struct launcher *base, int64_t job_id, int32_t attempt, const char *log_path,
                       struct launch_handle *out, int *ticket_fd, struct error *err)
{
    struct local *l = (struct local *)base;
    /* tandem-spawn makes the folders of another user. */
    if (!*out->user && make_log_folder(log_path, err) != 0) {
        return -1;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return error_errno(err, errno, "pipe");
    }
    pid_t pid;
    int rc = spawn_node(l, job_id, attempt, out->user, log_path, ends[0], &pid, err);
    close(ends[0]);
    if (rc != 0) {
        close(ends[1]);
        return -1;
    }
    /* It starts nobody before it has its ticket. */
    cgroup_enter(&l->groups, job_id, attempt, pid);
    out->start_time = 0;
    out->pid = pid;
    snprintf(out->boot_id, sizeof out->boot_id, "%s", l->boot_id);
    struct proc_stat p;
    /* A zombie still has its line; only the reaper, which is us, takes it away. */
    if (proc_read(pid, &p)) {
        out->start_time = p.start_time;
    }
    *ticket_fd = ends[1];
    return 0;
}

/* The process of the handle itself: 1 alive, 0 gone. Reaps it where it is our child. */
static int node_alive(const struct local *l, const struct launch_handle *h)
{
    if (h->pid <= 0 || strcmp(h->boot_id, l->boot_id) != 0) {
        return 0;
    }
    struct proc_stat p;
    if (!proc_read(h->pid, &p) || p.start_time != h->start_time) {
        return 0;
    }
    if (p.state != 'Z' && p.state != 'X') {
        return 1;
    }
    /* 0: our child, whose last thread ends just now; later, or it stays a zombie. */
    return waitpid((pid_t)h->pid, NULL, WNOHANG) == 0;
}

/* The same through tandem-spawn, which can look into and signal another user's processes. An error
 * isn't the news that all are gone. */
static size_t ask_spawn(const struct local *l, const struct launch_handle *h, const char *sig,
                        int64_t *first)
{
    char job[24], attempt[16], pid[24], start[24], said[256];
    struct error err = {0};
    unsigned long long num = 0;
    long long one = 0;
    snprintf(job, sizeof job, "%lld", (long long)h->job_id);
    snprintf(attempt, sizeof attempt, "%d", (int)h->attempt);
    snprintf(pid, sizeof pid, "%lld", (long long)h->pid);
    snprintf(start, sizeof start, "%lld", (long long)h->start_time);
    const char *const words[] = {"kill", h->user, job, attempt, pid, start, sig, NULL};
    if (launch_spawn_ask(l->bin_dir, words, said, sizeof said, &err) != 0 ||
        sscanf(said, "%llu %lld", &num, &one) != 2) {
        log_warn("job %lld: %s", (long long)h->job_id, err.text);
        return 1;
    }
    *first = one;
    return num;
}

/* What it left behind or has below it. */
static size_t descendants(const struct local *l, const struct launch_handle *h, int64_t *pids,
                          size_t max)
{
    char mark[PATH_MAX + 64];
    make_mark(l, h->job_id, h->attempt, mark, sizeof mark);
    return proc_descendants(h->pid, h->start_time, mark, pids, max);
}

static void describe(int64_t pid, size_t num, struct launch_left *left)
{
    struct proc_stat p = {.state = '?'};
    *left = (struct launch_left){.pid = pid, .num = (int64_t)num};
    proc_read(pid, &p);
    left->state = p.state;
    snprintf(left->name, sizeof left->name, "%s", p.name);
}

static enum launch_presence local_look(struct launcher *base, const struct launch_handle *h,
                                       struct launch_left *left)
{
    struct local *l = (struct local *)base;
    struct launch_left none;
    left = left ? left : &none;
    if (h->pid <= 0 || strcmp(h->boot_id, l->boot_id) != 0) {
        return LAUNCH_GONE; /* another boot: nothing of it can live */
    }
    /* In this order: what it leaves behind is looked for only once it can leave no more. */
    if (node_alive(l, h)) {
        describe(h->pid, 1, left);
        return LAUNCH_ALIVE;
    }
    int64_t one = 0;
    size_t num = *h->user ? ask_spawn(l, h, "0", &one) : descendants(l, h, &one, 1);
    if (num == 0) {
        num = cgroup_look(&l->groups, h->job_id, h->attempt, &one);
    }
    if (num > 0) {
        describe(one, num, left);
    }
    return num > 0 ? LAUNCH_REMAINS : LAUNCH_GONE;
}

static void local_kill(struct launcher *base, const struct launch_handle *h)
{
    struct local *l = (struct local *)base;
    if (h->pid <= 0 || strcmp(h->boot_id, l->boot_id) != 0) {
        return;
    }
    cgroup_kill(&l->groups, h->job_id, h->attempt);
    if (*h->user) {
        int64_t one;
        ask_spawn(l, h, "9", &one);
        return;
    }
    int64_t *pids = malloc(PIDS_MAX * sizeof *pids);
    if (!pids) {
        return;
    }
    /* Stopped first, so that it can't start others while its descendants are killed. */
    if (node_alive(l, h)) {
        kill((pid_t)h->pid, SIGSTOP);
    }
    size_t num = descendants(l, h, pids, PIDS_MAX);
    for (size_t i = 0; i < num && i < PIDS_MAX; i++) {
        kill((pid_t)pids[i], SIGKILL);
    }
    if (node_alive(l, h)) {
        kill((pid_t)h->pid, SIGKILL);
    }
    free(pids);
}

static void local_free(struct launcher *base)
{
    free(base);
}

int launcher_local_new(struct launcher **out, const char *bin_dir, const char *data_dir,
                       struct error *err)
{
    struct local *l = calloc(1, sizeof *l);
    if (!l) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    l->base = (struct launcher){.name = "local",
                                .start = local_start,
                                .kill = local_kill,
                                .look = local_look,
                                .free = local_free};
    proc_boot_id(l->boot_id, sizeof l->boot_id);
    snprintf(l->data_dir, sizeof l->data_dir, "%s", data_dir);
    l->bin_dir = bin_dir;
    cgroup_find(&l->groups, data_dir);
    if (!fs_join(l->node_path, sizeof l->node_path, bin_dir, "tandem-node") ||
        !fs_join(l->spawn_path, sizeof l->spawn_path, bin_dir, "tandem-spawn")) {
        free(l);
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", bin_dir);
    }
    *out = &l->base;
    return 0;
}
