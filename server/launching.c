#include "server/launching.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/msg.h"
#include "server/worker.h"

#define KILL_TIMEOUT_MS 2000
/* Time alone is no proof: this thread, or all of the machine, may have stood still for so long. */
#define LOOKS_LEAST 8
/* Between two looks at what was killed. */
#define LOOK_FIRST_MS 2
#define LOOK_MS 100

struct launching {
    struct launcher *launcher; /* owned */
    const char *data_dir;
    struct mailbox *back;
    struct worker *worker;
    struct launch_mail *kills; /* under way; owned; launch thread */
};

static void free_launch_mail(struct mail *base)
{
    struct launch_mail *m = (struct launch_mail *)base;
    msg_free(m->ticket);
    replay_free(&m->replay);
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
    snprintf(log, sizeof log, "%s/node.log", logs);
    return l->launcher->start(l->launcher, m->job_id, m->attempt, log, &m->handle, &m->ticket_fd,
                              &m->error);
}

static void answer(struct launching *l, struct launch_mail *m)
{
    if (m->kind == LAUNCH_CHECK && (!m->ok || m->stuck)) {
        struct error err = {0};
        if (replay_read(&m->replay, l->data_dir, m->job_id, m->attempt, m->acked_seq, &err) != 0) {
            m->unread = true;
            m->error = m->stuck ? m->error : err;
        }
    }
    m->mail.run = m->then;
    mailbox_post(l->back, &m->mail.node);
}

static void begin_kill(struct launching *l, struct launch_mail *m)
{
    l->launcher->kill(l->launcher, &m->handle);
    m->wait_ms = LOOK_FIRST_MS;
    m->look_ms = clock_mono_ms();
    m->give_up_ms = m->look_ms + KILL_TIMEOUT_MS;
    m->next = l->kills;
    l->kills = m;
}

/* True: it has come to an end, one way or the other. */
static bool go_on_killing(struct launching *l, struct launch_mail *m, int64_t now_ms)
{
    struct launch_left left;
    if (now_ms < m->look_ms) {
        return false;
    }
    bool gone = l->launcher->look(l->launcher, &m->handle, &left) == LAUNCH_GONE;
    m->num_looks++;
    if (!gone && (now_ms < m->give_up_ms || m->num_looks < LOOKS_LEAST)) {
        l->launcher->kill(l->launcher, &m->handle);
        m->look_ms = now_ms + m->wait_ms;
        m->wait_ms = 2 * m->wait_ms < LOOK_MS ? 2 * m->wait_ms : LOOK_MS;
        return false;
    }
    m->stuck = !gone;
    m->ok = m->kind == LAUNCH_KILL ? gone : !gone;
    if (!gone) {
        error_set(&m->error, ERR_DEADLINE_EXCEEDED,
                  "pid %lld (%s, state %c) was killed and is still there%s", (long long)left.pid,
                  left.name, left.state, left.num > 1 ? ", with others" : "");
    }
    return true;
}

static int64_t tend_kills(void *owner)
{
    struct launching *l = owner;
    int64_t now_ms = clock_mono_ms(), wait_ms = -1;
    for (struct launch_mail **at = &l->kills; *at;) {
        struct launch_mail *m = *at;
        if (go_on_killing(l, m, now_ms)) {
            *at = m->next;
            answer(l, m);
            continue;
        }
        int64_t left_ms = m->look_ms > now_ms ? m->look_ms - now_ms : 0;
        wait_ms = wait_ms < 0 || left_ms < wait_ms ? left_ms : wait_ms;
        at = &m->next;
    }
    return wait_ms;
}

static int run(void *owner, struct mail *base, struct error *err)
{
    (void)err;
    struct launching *l = owner;
    struct launch_mail *m = (struct launch_mail *)base;
    worker_keep(l->worker, base);
    m->handle.job_id = m->job_id;
    m->handle.attempt = m->attempt;
    enum launch_presence presence = LAUNCH_REMAINS;
    if (m->kind == LAUNCH_START) {
        m->ok = start(l, m) == 0;
        answer(l, m);
        return 0;
    }
    if (m->kind == LAUNCH_CHECK) {
        presence = l->launcher->look(l->launcher, &m->handle, NULL);
    }
    if (presence == LAUNCH_REMAINS) {
        begin_kill(l, m);
    } else {
        m->ok = presence == LAUNCH_ALIVE;
        answer(l, m);
    }
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

int launching_new(struct launching **out, struct launcher *launcher, const char *data_dir,
                  struct mailbox *back, struct error *err)
{
    struct launching *l = calloc(1, sizeof *l);
    if (!l) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    l->launcher = launcher;
    l->data_dir = data_dir;
    l->back = back;
    if (worker_new(&l->worker, "launch", l, tend_kills, err) != 0) {
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
        while (l->kills) {
            struct launch_mail *m = l->kills;
            l->kills = m->next;
            mail_free(&m->mail);
        }
        l->launcher->free(l->launcher);
        free(l);
    }
}
