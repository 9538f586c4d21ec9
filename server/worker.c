#include "server/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct worker {
    struct mailbox *box;
    pthread_t thread;
    void *owner;
    int64_t (*idle)(void *owner);
    struct mail *kept; /* on the worker's thread */
    atomic_bool stop;
};

static void run_one(struct worker *w, struct mail *m)
{
    struct error err = {0};
    w->kept = NULL;
    if (m->run(w->owner, m, &err) != 0 && m->call) {
        call_fail_error(m->call, &err);
    }
    if (w->kept != m) {
        mail_free(m);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    int64_t timeout_ms = w->idle ? w->idle(w->owner) : -1;
    while (!atomic_load(&w->stop)) {
        struct mailbox_node *chain = mailbox_take(w->box, timeout_ms);
        while (chain && !atomic_load(&w->stop)) {
            struct mailbox_node *next = chain->next;
            run_one(w, (struct mail *)chain);
            chain = next;
        }
        mail_free_chain(chain);
        timeout_ms = w->idle ? w->idle(w->owner) : -1;
    }
    return NULL;
}

int worker_new(struct worker **out, const char *name, void *owner, int64_t (*idle)(void *owner),
               struct error *err)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w || mailbox_new(&w->box) != 0) {
        free(w);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s thread: out of memory", name);
    }
    w->owner = owner;
    w->idle = idle;
    int rc = pthread_create(&w->thread, NULL, worker_main, w);
    if (rc != 0) {
        mailbox_free(w->box);
        free(w);
        return error_errno(err, rc, "%s thread", name);
    }
    pthread_setname_np(w->thread, name);
    *out = w;
    return 0;
}

void worker_post(struct worker *w, struct mail *m)
{
    mailbox_post(w->box, &m->node);
}

void worker_keep(struct worker *w, struct mail *m)
{
    w->kept = m;
}

void worker_free(struct worker *w)
{
    if (!w) {
        return;
    }
    atomic_store(&w->stop, true);
    mailbox_wake(w->box);
    pthread_join(w->thread, NULL);
    mail_free_chain(mailbox_take(w->box, 0));
    mailbox_free(w->box);
    free(w);
}
