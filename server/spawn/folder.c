#include "server/spawn/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static int fail(char *why, const char *what)
{
    snprintf(why, SPAWN_WHY_SIZE, "%.500s: %s", what, strerror(errno));
    return -1;
}

/* What was just made is root's; whatever else stands there must be the user's already. Nobody else
 * can put a folder of root's into jobs, so nothing but what we have made changes its owner. */
static int take_over(int fd, const char *name, const struct spawn_user *user, gid_t group,
                     char *why)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fail(why, name);
    }
    if (st.st_uid == user->uid) {
        return 0;
    }
    if (st.st_uid != 0) {
        snprintf(why, SPAWN_WHY_SIZE, "%s belongs to uid %u, not to %s", name, (unsigned)st.st_uid,
                 user->name);
        return -1;
    }
    if (fchown(fd, user->uid, group) != 0 || fchmod(fd, 02770) != 0) {
        return fail(why, name);
    }
    return 0;
}

int spawn_folder_open(const struct spawn_conf *conf, int64_t job, const struct spawn_user *user,
                      gid_t caller_group, int *fd, char *why)
{
    char name[32];
    snprintf(name, sizeof name, "%lld", (long long)job);
    int jobs = open(conf->jobs, FOLDER);
    if (jobs < 0) {
        return fail(why, conf->jobs);
    }
    int made = mkdirat(jobs, name, 0700);
    *fd = made == 0 || errno == EEXIST ? openat(jobs, name, FOLDER) : -1;
    int rc = *fd < 0 ? fail(why, name) : 0;
    close(jobs);
    if (rc == 0 && take_over(*fd, name, user, caller_group, why) != 0) {
        close(*fd);
        rc = -1;
    }
    return rc;
}

static int enter(int dir, const char *name, char *why)
{
    int fd = mkdirat(dir, name, 0770) == 0 || errno == EEXIST ? openat(dir, name, FOLDER) : -1;
    if (fd < 0) {
        fail(why, name);
    }
    return fd;
}

int spawn_folder_fill(int fd, int64_t attempt, int *log_fd, char *why)
{
    char name[32];
    snprintf(name, sizeof name, "attempt-%lld", (long long)attempt);
    int ckpt = enter(fd, "ckpt", why);
    int logs = ckpt < 0 ? -1 : enter(fd, "logs", why);
    int own = logs < 0 ? -1 : enter(logs, name, why);
    *log_fd =
        own < 0 ? -1
                : openat(own, "node.log",
                         O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0660);
    if (own >= 0 && *log_fd < 0) {
        fail(why, "node.log");
    }
    const int all[] = {ckpt, logs, own};
    for (size_t i = 0; i < 3; i++) {
        if (all[i] >= 0) {
            close(all[i]);
        }
    }
    return *log_fd < 0 ? -1 : 0;
}
