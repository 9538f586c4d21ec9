#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fs.h"
#include "runtime/node/gang_state.h"
#include "runtime/node/pin.h"

#define LINK_FD 3
#define SEGMENT_FD 4

/* Above the numbers that the rank gets, so that no dup2 hits a source. */
static int lift(int fd, struct error *err)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 16);
    return high >= 0 ? high : error_errno(err, errno, "duplicate a descriptor");
}

static int fill_actions(posix_spawn_file_actions_t *a, int log_fd, int link_fd, int segment_fd)
{
    int rc = posix_spawn_file_actions_addopen(a, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(a, log_fd, STDOUT_FILENO);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(a, STDOUT_FILENO, STDERR_FILENO);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(a, link_fd, LINK_FD);
    }
    if (rc == 0 && segment_fd >= 0) {
        rc = posix_spawn_file_actions_adddup2(a, segment_fd, SEGMENT_FD);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_addclosefrom_np(a, segment_fd >= 0 ? 5 : 4);
    }
    return rc;
}

static int spawn(const struct gang_spawn *s, int log_fd, int link_fd, int segment_fd, pid_t *pid)
{
    char rank[16], job[24];
    snprintf(rank, sizeof rank, "%d", (int)s->rank);
    snprintf(job, sizeof job, "%lld", (long long)s->job_id);
    char *argv[] = {
        (char *)(uintptr_t)s->program, (char[]){"--rank"}, rank, (char[]){"--job"}, job, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    int rc = child_attributes(&attr, POSIX_SPAWN_SETPGROUP);
    if (rc == 0) {
        rc = fill_actions(&actions, log_fd, link_fd, segment_fd);
    }
    if (rc == 0) {
        struct pin_before before;
        pin_begin(s->pin, &before);
        rc = posix_spawn(pid, s->program, &actions, &attr, argv, environ);
        pin_end(&before);
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

int gang_spawn(const struct gang_spawn *s, pid_t *pid, struct error *err)
{
    int segment_fd = -1, log_fd = -1;
    int link_fd = lift(s->link_fd, err);
    if (link_fd < 0) {
        return -1;
    }
    int rc = 0;
    if (s->segment_fd >= 0 && (segment_fd = lift(s->segment_fd, err)) < 0) {
        rc = -1;
    }
    /* Here, not in the child, which we wait for: a FIFO would stop us for ever. */
    if (rc == 0 && (log_fd = fs_open_append(s->log_path, 0640, err)) < 0) {
        rc = error_wrap(err, "the log of rank %d", (int)s->rank);
    }
    if (rc == 0) {
        int errnum = spawn(s, log_fd, link_fd, segment_fd, pid);
        rc = errnum ? error_errno(err, errnum, "start %s", s->program) : 0;
    }
    close(link_fd);
    if (log_fd >= 0) {
        close(log_fd);
    }
    if (segment_fd >= 0) {
        close(segment_fd);
    }
    return rc;
}
