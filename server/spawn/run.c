#include "server/spawn/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_roots(const char *path, mode_t kind)
{
    struct stat st;
    return lstat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind && st.st_uid == 0 &&
           (st.st_mode & 022) == 0;
}

int spawn_run_check(const struct spawn_conf *conf, const char *name, char path[SPAWN_PATH_SIZE],
                    char *why)
{
    int n = snprintf(path, SPAWN_PATH_SIZE, "%s/%s", conf->programs, name);
    if (n < 0 || n >= SPAWN_PATH_SIZE || !is_roots(conf->programs, S_IFDIR) ||
        !is_roots(path, S_IFREG)) {
        snprintf(why, SPAWN_WHY_SIZE,
                 "%s: it and its folder must be root's, and nobody else may write them", path);
        return -1;
    }
    return 0;
}

void spawn_run_clean(unsigned first_closed)
{
    syscall(SYS_close_range, first_closed, ~0U, 0);
    for (int sig = 1; sig < NSIG; sig++) {
        signal(sig, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(007);
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 1024) {
        files.rlim_cur = 1024;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

void spawn_run_mark(const struct spawn_conf *conf, const struct spawn_request *r, char *out,
                    size_t size)
{
    int data_dir = (int)strlen(conf->jobs) - (int)strlen("/jobs");
    snprintf(out, size, "TANDEM_ATTEMPT=%lld.%lld@%.*s", (long long)r->job, (long long)r->attempt,
             data_dir, conf->jobs);
}

int spawn_run_exec(const char *path, char *const *argv, char *mark, char *why)
{
    char *env[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, (char[]){"LANG=C.UTF-8"},
                   mark[0] ? mark : NULL, NULL};
    if (chdir("/") == 0) {
        execve(path, argv, env);
    }
    snprintf(why, SPAWN_WHY_SIZE, "start %s: %s", path, strerror(errno));
    return -1;
}
