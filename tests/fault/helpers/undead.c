/* Preloaded into the programs under test: what calls itself "undead" can't be killed by them, as a
 * process can't that hangs in the kernel. A test can't make one of those; who kills it from outside
 * plays the kernel that lets go of it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_undead(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t n = read(fd, name, sizeof name - 1);
    close(fd);
    return n > 0 && strncmp(name, "undead\n", 7) == 0;
}

int kill(pid_t pid, int sig)
{
    if (sig != 0 && pid > 0 && is_undead(pid)) {
        return 0;
    }
    return (int)syscall(SYS_kill, pid, sig);
}
