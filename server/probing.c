#include "server/probing.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "proto/text.h"
#include "server/msg.h"
#include "server/probe_cache.h"
#include "server/probe_process.h"
#include "server/worker.h"

/* A tenant's requests always go the same way, so that a file server of its own that hangs keeps
 * only few others waiting. */
#define LANES 4

extern char **environ;

/* A thread with what it has learnt. */
struct lane {
    struct mailbox *back;
    struct worker *worker;
    struct probe_process process;
    struct probe_cache cache;
};

struct probing {
    char path[PATH_MAX], spawner[PATH_MAX];
    int stop_fd;
    struct lane lanes[LANES];
};

static void free_probe_mail(struct mail *base)
{
    struct probe_mail *m = (struct probe_mail *)base;
    msg_free(m->request);
    msg_free(m->reply);
}

/* What the caller gets: without what is only for us. */
static ProbeReply *strip_files(ProbeReply *r)
{
    for (size_t i = 0; i < r->n_files; i++) {
        msg_free(r->files[i]);
    }
    free(r->files);
    r->files = NULL;
    r->n_files = 0;
    return r;
}

/* The probe, asked whether what an earlier answer was read from is still the same. */
static int ask(struct lane *p, ProbeRequest *request, const struct probe_answer *known,
               ProbeReply **out, struct error *err)
{
    if (known) {
        request->known = known->reply->files;
        request->n_known = known->reply->n_files;
    }
    int rc = probe_process_run(&p->process, request, out, err);
    request->known = NULL;
    request->n_known = 0;
    return rc;
}

static int answer(struct lane *p, struct probe_mail *m, const struct buf *key)
{
    struct probe_answer *known = probe_cache_find(&p->cache, key->data, key->len);
    if (known && known->checked_ns > m->posted_ns) {
        m->reply = strip_files((ProbeReply *)text_clone(&known->reply->base));
        return 0;
    }
    int64_t now_ns = clock_mono_ns();
    ProbeReply *reply;
    if (ask(p, m->request, known, &reply, &m->error) != 0) {
        return -1;
    }
    if (known && reply->unchanged) {
        msg_free(reply);
        known->checked_ns = now_ns;
        m->reply = strip_files((ProbeReply *)text_clone(&known->reply->base));
        return 0;
    }
    if (!m->request->device_peak) {
        probe_cache_add(&p->cache, key->data, key->len, reply, now_ns);
    }
    m->reply = strip_files(reply);
    return 0;
}

static int run(void *owner, struct mail *base, struct error *err)
{
    (void)err;
    struct lane *p = owner;
    struct probe_mail *m = (struct probe_mail *)base;
    struct buf key = {0};
    size_t n = probe_request__get_packed_size(m->request);
    key.len = probe_request__pack(m->request, (uint8_t *)buf_reserve(&key, n));
    answer(p, m, &key);
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

static int open_lanes(struct probing *p, struct mailbox *back, struct error *err)
{
    p->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (p->stop_fd < 0) {
        return error_errno(err, errno, "eventfd");
    }
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &p->lanes[i];
        l->back = back;
        l->process = (struct probe_process){
            .program = p->path, .spawner = p->spawner, .env = environ, .stop_fd = p->stop_fd};
        if (worker_new(&l->worker, "probe", l, NULL, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int probing_new(struct probing **out, const char *bin_dir, struct mailbox *back, struct error *err)
{
    struct probing *p = calloc(1, sizeof *p);
    if (!p) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    p->stop_fd = -1;
    if (!fs_join(p->path, sizeof p->path, bin_dir, "tandem-probe") ||
        !fs_join(p->spawner, sizeof p->spawner, bin_dir, "tandem-spawn")) {
        free(p);
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", bin_dir);
    }
    if (open_lanes(p, back, err) != 0) {
        probing_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

static struct lane *lane_of(struct probing *p, const struct probe_mail *m)
{
    const char *tenant = "";
    if (m->mail.call) {
        tenant = call_caller(m->mail.call)->tenant;
    } else if (m->request->roots && m->request->roots->tenant) {
        tenant = m->request->roots->tenant;
    }
    return &p->lanes[rng_stream(tenant) % LANES];
}

void probing_post(struct probing *p, struct probe_mail *m)
{
    m->posted_ns = clock_mono_ns();
    worker_post(lane_of(p, m)->worker, &m->mail);
}

void probing_free(struct probing *p)
{
    if (!p) {
        return;
    }
    if (p->stop_fd >= 0) {
        eventfd_write(p->stop_fd, 1);
    }
    for (int i = 0; i < LANES; i++) {
        if (p->lanes[i].worker) {
            worker_free(p->lanes[i].worker);
        }
        probe_cache_clear(&p->lanes[i].cache);
    }
    if (p->stop_fd >= 0) {
        close(p->stop_fd);
    }
    free(p);
}
