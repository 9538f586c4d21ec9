#include "server/launching.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "server/msg.h"
#include "server/worker.h"

#define KILL_TIMEOUT_MS 2000

struct launching {
    struct launcher *launcher; /* owned */
    struct mailbox *back;
    struct worker *worker;
};

static void free_launch_mail(struct mail *base)
{
    struct launch_mail *m = (struct launch_mail *)base;
    msg_free(m->ticket);
    if (m->ticket_fd >= 0) {
        close(m->ticket_fd);
    }
}

static int start(struct launching *l, struct launch_mail *m)
{
    char logs[4096], log[4200];
    int n = snprintf(logs, sizeof logs, "%s/logs/attempt-%d", m->ticket->job_dir, m->attempt);
    if (n < 0 || (size_t)n >= sizeof logs) {
        return error_set(&m->error, ERR_INVALID_ARGUMENT, "%s: the path is too long",
                         m->ticket->job_dir);
    }
    if (fs_mkdirs(logs, 0700, &m->error) != 0) {
        return -1;
    }
    snprintf(log, sizeof log, "%s/node.log", logs);
    return l->launcher->start(l->launcher, m->job_id, m->attempt, log, &m->handle, &m->ticket_fd,
                              &m->error);
}

static int run(void *owner, struct mail *base, struct error *err)
{
    (void)err;
    struct launching *l = owner;
    struct launch_mail *m = (struct launch_mail *)base;
    switch (m->kind) {
    case LAUNCH_START:
        m->ok = start(l, m) == 0;
        break;
    case LAUNCH_CHECK:
        m->ok = l->launcher->alive(l->launcher, &m->handle) != 0;
        break;
    case LAUNCH_KILL:
        m->ok = l->launcher->kill(l->launcher, &m->handle, KILL_TIMEOUT_MS, &m->error) == 0;
        break;
    }
    m->mail.run = m->then;
    worker_pass_on(l->worker, base, l->back);
    return 0;
}

struct launch_mail *launch_mail_new(enum launch_kind kind, int64_t job_id, int32_t attempt,
                                    int (*then)(void *, struct mail *, struct error *))
{
    struct launch_mail *m = mail_new(sizeof *m, run, NULL, NULL);
    m->mail.free_fn = free_launch_mail;
    m->kind = kind;
    m->job_id = job_id;
    m->attempt = attempt;
    m->ticket_fd = -1;
    m->then = then;
    return m;
}

int launching_new(struct launching **out, struct launcher *launcher, struct mailbox *back,
                  struct error *err)
{
    struct launching *l = calloc(1, sizeof *l);
    if (!l) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    l->launcher = launcher;
    l->back = back;
    if (worker_new(&l->worker, "launch", l, NULL, err) != 0) {
        free(l);
        return -1;
    }
    *out = l;
    return 0;
}

void launching_post(struct launching *l, struct launch_mail *m)
{
    worker_post(l->worker, &m->mail);
}

void launching_free(struct launching *l)
{
    if (l) {
        worker_free(l->worker);
        l->launcher->free(l->launcher);
        free(l);
    }
}
