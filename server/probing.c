#include "server/probing.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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

/* What one tenant's requests may hold while they wait, and how much that is of each. */
#define WAITING_MAX_BYTES ((size_t)32 << 20)
#define MAIL_BYTES 4096

/* A tenant's requests that wait, oldest first. */
struct line {
    struct line *next; /* in the lane's ring */
    struct mailbox_node *first, **last;
    size_t bytes;
    char tenant[]; /* ends with 0 */
};

/* A thread with what it has learnt. */
struct lane {
    pthread_mutex_t lock;
    struct line *served; /* under lock: the ring, at the line that was served last; NULL = none */
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
    msg_free(m->result);
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
    if (!m->request->device_peak && !m->request->discover) {
        probe_cache_add(&p->cache, key->data, key->len, reply, now_ns);
    }
    m->reply = strip_files(reply);
    return 0;
}

/* ---- who is next ---- */

static const char *tenant_of(const struct probe_mail *m)
{
    if (m->mail.call) {
        return call_caller(m->mail.call)->tenant;
    }
    return m->request->roots && m->request->roots->tenant ? m->request->roots->tenant : "";
}

static size_t size_of(const struct probe_mail *m)
{
    return MAIL_BYTES + probe_request__get_packed_size(m->request) +
           (m->mail.message ? protobuf_c_message_get_packed_size(m->mail.message) : 0);
}

/* Lock held. The tenant's line; a new one is served last. */
static struct line *line_of(struct lane *l, const char *tenant)
{
    for (struct line *a = l->served; a; a = a->next == l->served ? NULL : a->next) {
        if (strcmp(a->tenant, tenant) == 0) {
            return a;
        }
    }
    size_t size = strlen(tenant) + 1;
    struct line *a = malloc(sizeof *a + size);
    ASSERT(a);
    *a = (struct line){.next = a};
    a->last = &a->first;
    memcpy(a->tenant, tenant, size);
    if (l->served) {
        a->next = l->served->next;
        l->served->next = a;
    }
    l->served = a;
    return a;
}

/* False: the tenant has too much waiting. */
static bool line_up(struct lane *l, struct probe_mail *m)
{
    size_t bytes = size_of(m);
    pthread_mutex_lock(&l->lock);
    struct line *a = line_of(l, tenant_of(m));
    bool fits = !a->first || a->bytes + bytes <= WAITING_MAX_BYTES;
    if (fits) {
        m->mail.node.next = NULL;
        *a->last = &m->mail.node;
        a->last = &m->mail.node.next;
        a->bytes += bytes;
    }
    pthread_mutex_unlock(&l->lock);
    return fits;
}

/* The oldest request of the tenant whose turn it is; NULL: none waits. */
static struct probe_mail *next_of(struct lane *l)
{
    struct probe_mail *m = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->served) {
        struct line *a = l->served->next;
        m = (struct probe_mail *)a->first;
        a->first = m->mail.node.next;
        a->bytes -= size_of(m);
        if (a->first) {
            l->served = a;
        } else {
            l->served->next = a->next;
            l->served = a == l->served ? NULL : l->served;
            free(a);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return m;
}

static void send_back(struct lane *l, struct probe_mail *m)
{
    m->mail.run = m->then;
    mailbox_post(l->back, &m->mail.node);
}

/* Whose turn it is needn't be whose request has brought this mail: there is one for each. */
static int run_next(void *owner, struct mail *base, struct error *err)
{
    (void)base;
    (void)err;
    struct lane *l = owner;
    struct probe_mail *m = next_of(l);
    if (m->mail.call && call_is_over(m->mail.call)) {
        error_set(&m->error, ERR_CANCELLED, "the caller is gone");
    } else {
        struct buf key = {0};
        size_t n = probe_request__get_packed_size(m->request);
        key.len = probe_request__pack(m->request, (uint8_t *)buf_reserve(&key, n));
        if (answer(l, m, &key) == 0 && m->work && m->work(m) != 0) {
            msg_free(m->reply);
            m->reply = NULL;
        }
        buf_free(&key);
    }
    send_back(l, m);
    return 0;
}

struct probe_mail *probe_mail_new(ProbeRequest *request, struct call *c,
                                  const ProtobufCMessage *message,
                                  int (*then)(void *, struct mail *, struct error *))
{
    struct probe_mail *m = mail_new(sizeof *m, then, c, message);
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
        pthread_mutex_init(&l->lock, NULL);
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

void probing_post(struct probing *p, struct probe_mail *m)
{
    const char *tenant = tenant_of(m);
    struct lane *l = &p->lanes[rng_stream(tenant) % LANES];
    m->posted_ns = clock_mono_ns();
    if (line_up(l, m)) {
        worker_post(l->worker, mail_new(sizeof(struct mail), run_next, NULL, NULL));
        return;
    }
    error_set(&m->error, ERR_RESOURCE_EXHAUSTED,
              "%zu MB of requests of tenant %s wait to be looked at, as much as may be; try again "
              "in a moment",
              WAITING_MAX_BYTES >> 20, tenant);
    send_back(l, m);
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
        for (struct probe_mail *m; (m = next_of(&p->lanes[i]));) {
            mail_free(&m->mail);
        }
        pthread_mutex_destroy(&p->lanes[i].lock);
        probe_cache_clear(&p->lanes[i].cache);
    }
    if (p->stop_fd >= 0) {
        close(p->stop_fd);
    }
    free(p);
}
