#include "server/launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"

#define ANSWER_MS 10000
#define WORDS_MAX 8

extern char **environ;

static int spawn(const char *path, const char *const *words, int out_fd, pid_t *pid)
{
    char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t)path};
    for (int i = 0; i < WORDS_MAX && words[i]; i++) {
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, out_fd, 2);
    int rc = posix_spawn(pid, path, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* To its end, or to the end of the time. */
static int read_all(int fd, char *out, size_t size)
{
    int64_t until_ms = clock_mono_ms() + ANSWER_MS;
    size_t len = 0;
    for (;;) {
        int64_t left_ms = until_ms - clock_mono_ms();
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        if (left_ms <= 0 || poll(&pfd, 1, (int)left_ms) == 0) {
            return -1;
        }
        char drop[256];
        bool full = len + 1 >= size;
        ssize_t n = read(fd, full ? drop : out + len, full ? sizeof drop : size - 1 - len);
        if (n == 0) {
            out[len] = 0;
            return 0;
        }
        len += n > 0 && !full ? (size_t)n : 0;
    }
}

int launch_spawn_ask(const char *bin_dir, const char *const *words, char *out, size_t size,
                     struct error *err)
{
    char path[PATH_MAX];
    int ends[2], status = 0;
    pid_t pid;
    if (!fs_join(path, sizeof path, bin_dir, "tandem-spawn")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", bin_dir);
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return error_errno(err, errno, "pipe");
    }
    int rc = spawn(path, words, ends[1], &pid);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return error_errno(err, rc, "start %s", path);
    }
    rc = read_all(ends[0], out, size);
    close(ends[0]);
    if (rc != 0) {
        /* It isn't ours to kill once it has changed its user. */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, WNOHANG);
        return error_set(err, ERR_DEADLINE_EXCEEDED, "%s gives no answer", path);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        out[strcspn(out, "\n")] = 0;
        return error_set(err, ERR_PERMISSION_DENIED, "%s",
                         *out ? out : "tandem-spawn ended without a word");
    }
    return 0;
}
