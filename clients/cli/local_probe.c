#include "clients/cli/local_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "proto/text.h"

#define DEADLINE_MS 60000
#define REPLY_MAX_BYTES ((size_t)4 << 20)
#define MESSAGE_MAX_BYTES ((size_t)64 << 20)

extern char **environ;

/* Both pipes stay with us; the child gets their other ends as its standard streams. */
static int spawn_probe(const char *program, pid_t *pid, int *in, int *out, struct error *err)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) {
        return error_errno(err, errno, "pipe");
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        return error_errno(err, errno, "pipe");
    }
    posix_spawn_file_actions_t actions;
    ASSERT(posix_spawn_file_actions_init(&actions) == 0);
    ASSERT(posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO) == 0);
    ASSERT(posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO) == 0);
    char *argv[] = {(char *)(uintptr_t) "tandem-probe", NULL};
    int rc = posix_spawn(pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (rc != 0) {
        close(to[1]);
        close(from[0]);
        return error_errno(err, rc, "start %s", program);
    }
    *in = to[1];
    *out = from[0];
    return 0;
}

static int read_reply(int fd, struct buf *reply, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + DEADLINE_MS;
    for (;;) {
        int64_t left_ms = end_ms - clock_mono_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left_ms <= 0 || poll(&p, 1, (int)left_ms) == 0) {
            return error_set(err, ERR_DEADLINE_EXCEEDED,
                             "tandem-probe: no answer within %d s; is the filesystem there?",
                             DEADLINE_MS / 1000);
        }
        ssize_t n = read(fd, buf_reserve(reply, 65536), 65536);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "tandem-probe");
        }
        if (n == 0) {
            return 0;
        }
        reply->len += (size_t)n;
        if (reply->len > REPLY_MAX_BYTES) {
            return error_set(err, ERR_INTERNAL, "tandem-probe: its answer is too long");
        }
    }
}

/* The request is smaller than a pipe's buffer in all but absurd cases, and the probe reads all of
 * it before it answers, so that writing first can't lock up. */
static int talk(pid_t pid, int in, int out, const struct buf *request, struct buf *reply,
                struct error *err)
{
    int rc = 0;
    if (fs_write_all(in, request->data, request->len) != 0 && errno != EPIPE) {
        rc = error_errno(err, errno, "tandem-probe");
    }
    close(in);
    if (rc == 0) {
        rc = read_reply(out, reply, err);
    }
    close(out);
    if (rc != 0) {
        kill(pid, SIGKILL);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (rc == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        return error_set(err, ERR_INTERNAL, "tandem-probe: ended with status 0x%x", status);
    }
    return rc;
}

static void pack_request(const ProbeRequest *request, struct buf *out)
{
    size_t len = probe_request__get_packed_size(request);
    probe_request__pack(request, (uint8_t *)buf_reserve(out, len));
    out->len += len;
}

static int unpack_reply(const struct buf *bytes, ProbeReply **out, struct error *err)
{
    ProtobufCMessage *message;
    if (text_unpack(&probe_reply__descriptor, bytes->data, bytes->len, MESSAGE_MAX_BYTES, &message,
                    err) != 0) {
        return error_wrap(err, "tandem-probe");
    }
    ProbeReply *reply = (ProbeReply *)message;
    if (reply->error) {
        error_set(err, ERR_INVALID_ARGUMENT, "%s", reply->error);
        probe_reply__free_unpacked(reply, NULL);
        return -1;
    }
    *out = reply;
    return 0;
}

static int ask(const ProbeRequest *question, ProbeReply **out, struct error *err)
{
    char dir[PATH_MAX], program[PATH_MAX];
    pid_t pid;
    int in = -1, from = -1;
    if (fs_self_dir(dir, sizeof dir, err) != 0) {
        return -1;
    }
    if (!fs_join(program, sizeof program, dir, "tandem-probe")) {
        return error_set(err, ERR_INTERNAL, "%s: path is too long", dir);
    }
    if (spawn_probe(program, &pid, &in, &from, err) != 0) {
        return -1;
    }
    struct buf request = {0}, reply = {0};
    pack_request(question, &request);
    int rc = talk(pid, in, from, &request, &reply, err);
    if (rc == 0) {
        rc = unpack_reply(&reply, out, err);
    }
    buf_free(&request);
    buf_free(&reply);
    return rc;
}

int local_probe(const JobSpec *spec, bool with_data, bool device_peak, ProbeReply **out,
                struct error *err)
{
    ProbeRequest request = PROBE_REQUEST__INIT;
    request.model = spec->model;
    if (spec->data && with_data) {
        request.n_sources = spec->data->n_train;
        request.sources = spec->data->train;
        request.tokenizer = spec->data->tokenizer;
    }
    request.has_device_peak = 1;
    request.device_peak = device_peak;
    return ask(&request, out, err);
}

int local_probe_host(ProbeReply **out, struct error *err)
{
    ProbeRequest request = PROBE_REQUEST__INIT;
    request.has_discover = 1;
    request.discover = 1;
    if (ask(&request, out, err) != 0) {
        return -1;
    }
    if (!(*out)->host || !(*out)->host->name) {
        probe_reply__free_unpacked(*out, NULL);
        return error_set(err, ERR_INTERNAL, "tandem-probe: says nothing of this host");
    }
    return 0;
}
