#include "server/probing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "proto/text.h"
#include "server/msg.h"
#include "server/worker.h"

#define CACHE_SIZE 64
#define REPLY_MAX_BYTES ((size_t)1 << 20)

struct cached {
    char *key; /* owned: the request and the files' identities; NULL = empty */
    size_t key_len;
    ProbeReply *reply; /* owned */
};

struct probing {
    char path[PATH_MAX];
    struct mailbox *back;
    struct worker *worker;
    struct cached cache[CACHE_SIZE]; /* on the probe thread */
    uint32_t next;
};

extern char **environ;

static void free_probe_mail(struct mail *base)
{
    struct probe_mail *m = (struct probe_mail *)base;
    msg_free(m->request);
    msg_free(m->reply);
}

/* ---- cache ---- */

static void add_identity(struct buf *key, const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    if (!fs_join(path, sizeof path, dir, name) || stat(path, &st) != 0) {
        return;
    }
    buf_printf(key, "|%s %llu %llu %lld.%09ld %lld", name, (unsigned long long)st.st_dev,
               (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
               (long long)st.st_size);
}

static void make_key(const ProbeRequest *r, struct buf *key)
{
    size_t n = probe_request__get_packed_size(r);
    probe_request__pack(r, (uint8_t *)buf_reserve(key, n));
    key->len += n;
    if (r->model && r->model->path) {
        /* The folder changes when a file is replaced; these when they are written to. */
        static const char *const names[] = {".", "config.json", "model.safetensors",
                                            "model.safetensors.index.json", NULL};
        for (int i = 0; names[i]; i++) {
            add_identity(key, r->model->path, names[i]);
        }
    }
    if (r->model && r->model->config) {
        add_identity(key, "", r->model->config);
    }
    for (size_t i = 0; i < r->n_sources; i++) {
        if (r->sources[i]->path) {
            add_identity(key, "", r->sources[i]->path);
        }
    }
}

static ProbeReply *cache_find(const struct probing *p, const struct buf *key)
{
    for (int i = 0; i < CACHE_SIZE; i++) {
        const struct cached *c = &p->cache[i];
        if (c->key && c->key_len == key->len && memcmp(c->key, key->data, key->len) == 0) {
            return (ProbeReply *)text_clone(&c->reply->base);
        }
    }
    return NULL;
}

static void cache_add(struct probing *p, struct buf *key, const ProbeReply *reply)
{
    struct cached *c = &p->cache[p->next++ % CACHE_SIZE];
    free(c->key);
    msg_free(c->reply);
    c->key_len = key->len;
    c->key = buf_take(key);
    c->reply = (ProbeReply *)text_clone(&reply->base);
}

/* ---- the process ---- */

static int spawn_probe(const struct probing *p, int in, int out, pid_t *pid)
{
    char *argv[] = {(char *)(uintptr_t)p->path, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        (short)POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    int rc = posix_spawn(pid, p->path, &actions, &attr, argv, environ);
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
static int read_reply(int fd, struct buf *out, struct error *err)
{
    int64_t deadline_ms = clock_mono_ms() + PROBE_DEADLINE_MS;
    for (;;) {
        int64_t left_ms = deadline_ms - clock_mono_ms();
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        if (left_ms <= 0 || poll(&pfd, 1, (int)left_ms) == 0) {
            return error_set(err, ERR_DEADLINE_EXCEEDED,
                             "reading the model and data took longer than %d s; is a filesystem "
                             "hanging?",
                             PROBE_DEADLINE_MS / 1000);
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

static int run_probe(const struct probing *p, const ProbeRequest *request, ProbeReply **out,
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
    int rc = spawn_probe(p, in, ends[1], &pid);
    close(in);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return error_errno(err, rc, "start %s", p->path);
    }
    struct buf data = {0};
    int got = read_reply(ends[0], &data, err);
    close(ends[0]);
    kill(pid, SIGKILL); /* still our child: the pid is its own, dead or alive */
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    ProbeReply *reply = NULL;
    if (got == 0) {
        reply = probe_reply__unpack(NULL, data.len, (const uint8_t *)data.data);
    }
    buf_free(&data);
    if (got != 0) {
        return -1;
    }
    if (!reply ||
        (!reply->error && !reply->model && !reply->n_sources && !reply->has_peak_flops_fp32)) {
        msg_free(reply);
        return error_set(err, ERR_INTERNAL, "tandem-probe died while it read model and data");
    }
    if (reply->error && *reply->error) {
        error_set(err, ERR_INVALID_ARGUMENT, "%s", reply->error);
        msg_free(reply);
        return -1;
    }
    *out = reply;
    return 0;
}

static int run(void *owner, struct mail *base, struct error *err)
{
    (void)err;
    struct probing *p = owner;
    struct probe_mail *m = (struct probe_mail *)base;
    struct buf key = {0};
    make_key(m->request, &key);
    m->reply = cache_find(p, &key);
    if (!m->reply && run_probe(p, m->request, &m->reply, &m->error) == 0 &&
        !m->request->device_peak) {
        cache_add(p, &key, m->reply);
    }
    buf_free(&key);
    m->mail.run = m->then;
    worker_pass_on(p->worker, base, p->back);
    return 0;
}

struct probe_mail *probe_mail_new(ProbeRequest *request, struct call *c,
                                  const ProtobufCMessage *message,
                                  int (*then)(void *, struct mail *, struct error *))
{
    struct probe_mail *m = mail_new(sizeof *m, run, c, message);
    m->mail.free_fn = free_probe_mail;
    m->request = request;
    m->then = then;
    return m;
}

int probing_new(struct probing **out, const char *bin_dir, struct mailbox *back, struct error *err)
{
    struct probing *p = calloc(1, sizeof *p);
    if (!p) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    p->back = back;
    if (!fs_join(p->path, sizeof p->path, bin_dir, "tandem-probe")) {
        free(p);
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", bin_dir);
    }
    if (worker_new(&p->worker, "probe", p, NULL, err) != 0) {
        free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void probing_post(struct probing *p, struct probe_mail *m)
{
    worker_post(p->worker, &m->mail);
}

void probing_free(struct probing *p)
{
    if (!p) {
        return;
    }
    worker_free(p->worker);
    for (int i = 0; i < CACHE_SIZE; i++) {
        free(p->cache[i].key);
        msg_free(p->cache[i].reply);
    }
    free(p);
}
