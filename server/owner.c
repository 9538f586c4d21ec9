#include "server/owner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct owner {
    struct controller *controller;
    pthread_t thread;
    atomic_bool stop;
};

static void *owner_main(void *arg)
{
    struct owner *o = arg;
    struct controller *c = o->controller;
    struct mailbox *box = controller_mailbox(c);
    while (!atomic_load(&o->stop)) {
        controller_step(c, mailbox_take(box, controller_wait_ms(c)));
    }
    struct mailbox_node *rest = mailbox_take(box, 0);
    if (rest) {
        controller_step(c, rest);
    }
    return NULL;
}

int owner_new(struct owner **out, struct controller *c, struct error *err)
{
    struct owner *o = calloc(1, sizeof *o);
    if (!o) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "owner thread: out of memory");
    }
    o->controller = c;
    int rc = pthread_create(&o->thread, NULL, owner_main, o);
    if (rc != 0) {
        free(o);
        return error_errno(err, rc, "owner thread");
    }
    pthread_setname_np(o->thread, "owner");
    *out = o;
    return 0;
}

void owner_free(struct owner *o)
{
    if (o) {
        atomic_store(&o->stop, true);
        mailbox_wake(controller_mailbox(o->controller));
        pthread_join(o->thread, NULL);
        free(o);
    }
}
