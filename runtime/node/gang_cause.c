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

/* The number behind word in a file of "word number" lines; -1 = none. */
static int64_t read_count(const char *path, const char *word)
{
    FILE *f = fopen(path, "re");
    char line[256], name[64];
    long long count, found = -1;
    while (f && found < 0 && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %lld", name, &count) == 2 && strcmp(name, word) == 0) {
            found = count;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* Of our cgroup: version 2's memory.events, else version 1's memory.oom_control. */
static int64_t group_oom_kills(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[1024], path[1200];
    int64_t found = -1;
    while (f && found < 0 && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        const char *v1 = strstr(line, ":memory:");
        if (strncmp(line, "0::/", 4) == 0 && strlen(line) > 4) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
        } else if (v1) {
            snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control",
                     v1 + strlen(":memory:"));
        } else {
            continue;
        }
        found = read_count(path, "oom_kill");
    }
    if (f) {
        fclose(f);
    }
    return found;
}

void gang_oom_read(struct gang_oom *out)
{
    out->host = read_count("/proc/vmstat", "oom_kill");
    out->group = group_oom_kills();
}

/* Who sends a KILL that isn't ours: the OOM killer counts its own, and before it strikes. */
static void guess_killer(const struct gang_oom *before, char *out, size_t size)
{
    struct gang_oom now;
    gang_oom_read(&now);
    double left = (double)read_count("/proc/meminfo", "MemAvailable:") / 1048576;
    if (now.group > before->group && before->group >= 0) {
        snprintf(out, size, "out of memory: the kernel's OOM killer struck in its cgroup");
    } else if (now.host < 0 || before->host < 0) {
        snprintf(out, size, "out of memory, or someone's kill (the host has %.1f GiB available)",
                 left);
    } else if (now.host > before->host) {
        snprintf(out, size,
                 "most likely out of memory: the kernel's OOM killer struck on this host "
                 "meanwhile (%.1f GiB are available now)",
                 left);
    } else {
        snprintf(out, size,
                 "someone's kill: the kernel's OOM killer has not struck on this host meanwhile "
                 "(%.1f GiB are available)",
                 left);
    }
}

static void killed(struct gang_member *m, int sig, const char *stop_reason,
                   const struct gang_oom *oom_before)
{
    char name[48], guess[200];
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
        guess_killer(oom_before, guess, sizeof guess);
        snprintf(m->why, sizeof m->why, "killed by %s, not by Tandem: %s", name, guess);
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
                const struct gang_oom *oom_before)
{
    if (WIFSIGNALED(status)) {
        killed(m, WTERMSIG(status), stop_reason, oom_before);
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
