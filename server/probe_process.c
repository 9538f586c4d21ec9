#include "server/probe_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fs.h"
#include "proto/text.h"
#include "server/msg.h"

#define REPLY_MAX_BYTES ((size_t)1 << 20)
#define MESSAGE_MAX_BYTES ((size_t)16 << 20)
/* For a process to be gone once it was killed. One that waits for a dead file server isn't. */
#define KILL_WAIT_MS 2000

static int spawn_probe(const struct probe_process *p, const char *user, int in, int out, pid_t *pid)
{
    const char *program = user ? p->spawner : p->program;
    char *argv[] = {(char *)(uintptr_t)program, user ? (char[]){"probe"} : NULL,
                    (char *)(uintptr_t)user, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    child_attributes(&attr, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    int rc = posix_spawn(pid, program, &actions, &attr, argv, p->env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static int request_memfd(const ProbeRequest *r, int *fd, struct error *err)
{
    struct buf packed = {0};
    size_t n = probe_request__get_packed_size(r);
    packed.len = probe_request__pack(r, (uint8_t *)buf_reserve(&packed, n));
    *fd = memfd_create("probe-request", MFD_CLOEXEC);
    if (*fd < 0 || fs_write_all(*fd, packed.data, packed.len) != 0 ||
        lseek(*fd, 0, SEEK_SET) != 0) {
        int e = errno;
        buf_free(&packed);
        if (*fd >= 0) {
            close(*fd);
        }
        return error_errno(err, e, "probe request");
    }
    buf_free(&packed);
    return 0;
}

/* Reads to the end; -1 when the deadline or the bound is passed. */
static int read_reply(int fd, int stop_fd, struct buf *out, struct error *err)
{
    int64_t deadline_ms = clock_mono_ms() + PROBE_DEADLINE_MS;
    for (;;) {
        int64_t left_ms = deadline_ms - clock_mono_ms();
        struct pollfd pfd[] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
        int ready = left_ms > 0 ? poll(pfd, 2, (int)left_ms) : 0;
        if (ready > 0 && pfd[1].revents) {
            return error_set(err, ERR_UNAVAILABLE, "the server is stopping");
        }
        if (ready == 0) {
            return error_set(err, ERR_DEADLINE_EXCEEDED,
                             "reading the model and data took longer than %d s; is a filesystem "
                             "hanging?",
                             PROBE_DEADLINE_MS / 1000);
        }
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        ssize_t n = read(fd, buf_reserve(out, 65536), 65536);
        if (n < 0 && errno != EINTR) {
            return error_errno(err, errno, "probe reply");
        }
        if (n == 0) {
            return 0;
        }
        out->len += n > 0 ? (size_t)n : 0;
        if (out->len > REPLY_MAX_BYTES) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "the probe's reply is over %zu bytes",
                             REPLY_MAX_BYTES);
        }
    }
}

static void reap_stuck(struct probe_process *p)
{
    for (int i = 0; i < p->num_stuck;) {
        if (waitpid(p->stuck[i], NULL, WNOHANG) != 0) {
            p->stuck[i] = p->stuck[--p->num_stuck];
        } else {
            i++;
        }
    }
}

/* It is our child: the pid is its own, dead or alive. */
static void end(struct probe_process *p, pid_t pid)
{
    kill(pid, SIGKILL);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    int ready = 1;
    while (fd >= 0 && (ready = poll(&pfd, 1, KILL_WAIT_MS)) < 0 && errno == EINTR) {
    }
    if (fd >= 0) {
        close(fd);
    }
    if (ready == 0) {
        p->stuck[p->num_stuck++] = pid;
        return;
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* The process's answer, as bytes. */
static int talk(struct probe_process *p, const ProbeRequest *request, struct buf *data,
                struct error *err)
{
    int in, ends[2];
    if (request_memfd(request, &in, err) != 0) {
        return -1;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        close(in);
        return error_errno(err, errno, "pipe");
    }
    pid_t pid;
    int rc = spawn_probe(p, request->run_as, in, ends[1], &pid);
    close(in);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return error_errno(err, rc, "start %s", p->program);
    }
    rc = read_reply(ends[0], p->stop_fd, data, err);
    close(ends[0]);
    end(p, pid);
    return rc;
}

int probe_process_run(struct probe_process *p, const ProbeRequest *request, ProbeReply **out,
                      struct error *err)
{
    reap_stuck(p);
    if (p->num_stuck == PROBE_STUCK_MAX) {
        return error_set(err, ERR_UNAVAILABLE,
                         "%d probes hang in a filesystem and can't be killed; no more are started",
                         p->num_stuck);
    }
    struct buf data = {0};
    ProtobufCMessage *message = NULL;
    int rc = talk(p, request, &data, err);
    if (rc == 0 && data.len > 0) {
        rc = text_unpack(&probe_reply__descriptor, data.data, data.len, MESSAGE_MAX_BYTES, &message,
                         err);
    }
    buf_free(&data);
    if (rc != 0) {
        return -1;
    }
    ProbeReply *reply = (ProbeReply *)message;
    if (!reply || (!reply->error && !reply->model && !reply->n_sources && !reply->unchanged &&
                   !reply->has_peak_flops_fp32 && !reply->host)) {
        msg_free(reply);
        return error_set(err, ERR_INTERNAL, "tandem-probe died while it read model and data");
    }
    if (reply->error && *reply->error) {
        bool denied = reply->error_code == ERR_PERMISSION_DENIED;
        error_set(err, denied ? ERR_PERMISSION_DENIED : ERR_INVALID_ARGUMENT, "%s", reply->error);
        msg_free(reply);
        return -1;
    }
    *out = reply;
    return 0;
}
