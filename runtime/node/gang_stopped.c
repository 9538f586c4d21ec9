/* Ranks that someone has stopped (SIGSTOP, a terminal's Ctrl-Z). A stopped process never says so,
 * and where there is only one rank no collective's deadline finds it either. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/node/gang_state.h"

/* T in /proc/PID/stat; a debugger's stop is a small t. The name before it may hold anything. */
static bool is_stopped(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = 0;
    const char *after_name = strrchr(line, ')');
    return after_name && strncmp(after_name, ") T", 3) == 0;
}

void gang_look_for_stopped(struct gang *g)
{
    int64_t now = clock_mono_ms();
    for (int32_t i = 0; i < g->options.num_ranks && g->phase == GANG_RUNS; i++) {
        struct gang_member *m = &g->members[i];
        if (!m->pid || !is_stopped(m->pid)) {
            m->stopped_since_ms = 0;
        } else if (!m->stopped_since_ms) {
            m->stopped_since_ms = now;
        } else if (now - m->stopped_since_ms >= g->options.stopped_ms) {
            char text[200];
            snprintf(text, sizeof text,
                     "stood still for %.0f s after step %lld: stopped by a signal (SIGSTOP), not "
                     "by Tandem",
                     (double)(now - m->stopped_since_ms) / 1000.0, (long long)m->step);
            gang_fail(g, m->rank, text);
            return;
        }
    }
}
