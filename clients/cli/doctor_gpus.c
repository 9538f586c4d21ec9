#include "clients/cli/doctor_gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"

enum { HAS_GPUS = 0, HAS_NO_DRIVER = 3 };

/* tandem-tool's line, and how it ended; -1 where it can't be started. */
static int ask_tool(char *words, size_t size, int *status)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct error err;
    int ends[2];
    if (fs_self_dir(dir, sizeof dir, &err) || !fs_join(path, sizeof path, dir, "tandem-tool") ||
        pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl(path, "tandem-tool", "gpus", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t len = 0;
    ssize_t n = 1;
    while (pid > 0 && len + 1 < size && n > 0) {
        n = read(ends[0], words + len, size - 1 - len);
        len += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    words[len] = 0;
    words[strcspn(words, "\n")] = 0;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return pid > 0 ? 0 : -1;
}

bool doctor_gpus(char *words, size_t size)
{
    int status = 0;
    if (ask_tool(words, size, &status) != 0) {
        snprintf(words, size, "tandem-tool, which looks for them, doesn't start");
        return false;
    }
    if (WIFSIGNALED(status)) {
        snprintf(words, size, "looking for them was ended by signal %d: the driver %s",
                 WTERMSIG(status), WTERMSIG(status) == SIGALRM ? "hangs" : "crashes");
        return false;
    }
    if (!*words) {
        snprintf(words, size, "tandem-tool, which looks for them, ended with %d",
                 WEXITSTATUS(status));
        return false;
    }
    return WEXITSTATUS(status) == HAS_GPUS || WEXITSTATUS(status) == HAS_NO_DRIVER;
}
