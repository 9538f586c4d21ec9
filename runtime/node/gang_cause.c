/* Why a rank is gone, in words. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/node/gang_state.h"

static void signal_text(int sig, char *out, size_t size)
{
    const char *name = sigabbrev_np(sig);
    if (name) {
        snprintf(out, size, "signal %d (SIG%s)", sig, name);
    } else {
        snprintf(out, size, "signal %d", sig);
    }
}

int64_t gang_oom_kills(void)
{
    FILE *f = fopen("/proc/vmstat", "re");
    char line[128];
    long long count = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "oom_kill %lld", &count) == 1) {
            break;
        }
    }
    if (f) {
        fclose(f);
    }
    return count;
}

static void killed(struct gang_member *m, int sig, const char *stop_reason, int64_t oom_kills)
{
    char name[48];
    signal_text(sig, name, sizeof name);
    bool ours =
        m->sent_signal == SIGKILL ? sig == SIGKILL || sig == SIGTERM : m->sent_signal == sig;
    m->code = sig;
    m->kind = ours ? EXIT_STOPPED : EXIT_SIGNAL;
    if (ours && m->faulted) {
        snprintf(m->why, sizeof m->why, "%.600s (then stopped by Tandem with %s)", m->fault, name);
    } else if (ours) {
        snprintf(m->why, sizeof m->why, "stopped by Tandem with %s: %.500s", name, stop_reason);
    } else if (sig == SIGKILL) {
        snprintf(m->why, sizeof m->why, "killed by %s, not by Tandem: %s", name,
                 oom_kills > 0
                     ? "most likely out of memory (the kernel's OOM killer struck on this "
                       "host meanwhile)"
                     : "out of memory, or someone's kill");
    } else if (sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT) {
        snprintf(m->why, sizeof m->why, "killed by %s, not by Tandem: someone's kill", name);
    } else {
        snprintf(m->why, sizeof m->why, "killed by %s: %s", name, strsignal(sig));
    }
}

static void left(struct gang_member *m, int code, const char *stop_reason, bool is_cause)
{
    m->code = code;
    if (code == 0 && m->done) {
        m->kind = EXIT_OK;
        snprintf(m->why, sizeof m->why, "%s", m->paused ? "paused" : "finished");
        return;
    }
    m->kind = stop_reason[0] && !is_cause ? EXIT_STOPPED : EXIT_CODE;
    if (m->faulted) {
        snprintf(m->why, sizeof m->why, "%s", m->fault);
        return;
    }
    char more[80] = "";
    if (code > 128 && code < 128 + NSIG) {
        char name[48];
        signal_text(code - 128, name, sizeof name);
        snprintf(more, sizeof more, ", as a shell reports %s", name);
    } else if (code == 0) {
        snprintf(more, sizeof more, " before it was done");
    }
    if (stop_reason[0]) {
        snprintf(m->why, sizeof m->why, "left with code %d%s after: %.500s", code, more,
                 stop_reason);
    } else {
        snprintf(m->why, sizeof m->why, "left with code %d%s, without a word of why", code, more);
    }
}

void gang_cause(struct gang_member *m, int status, const char *stop_reason, bool is_cause,
                int64_t oom_kills)
{
    if (WIFSIGNALED(status)) {
        killed(m, WTERMSIG(status), stop_reason, oom_kills);
    } else {
        left(m, WEXITSTATUS(status), stop_reason, is_cause);
    }
}

void gang_cause_log(const char *log_path, const struct gang_member *m)
{
    int fd = open(log_path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        return;
    }
    char last = '\n', line[GANG_TEXT_MAX + 128], when[40];
    off_t size = lseek(fd, 0, SEEK_END);
    if (size > 0 && pread(fd, &last, 1, size - 1) != 1) {
        last = '\n';
    }
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    int n = snprintf(line, sizeof line, "%s%s.%03ldZ %s tandem-node: rank %d: %s\n",
                     last == '\n' ? "" : "\n", when, now.tv_nsec / 1000000,
                     m->kind == EXIT_OK ? "info" : "error", (int)m->rank, m->why);
    /* One write: whole even where the rank's own children still write. */
    fs_write_all(fd, line, (size_t)n);
    close(fd);
}
