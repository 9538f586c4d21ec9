#include "base/mailbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

struct mailbox {
    pthread_mutex_t lock;
    struct mailbox_node *first; /* guarded by lock */
    struct mailbox_node **last;
    int fd;
};

int mailbox_new(struct mailbox **out)
{
    struct mailbox *m = calloc(1, sizeof *m);
    if (!m) {
        return -1;
    }
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0) {
        free(m);
        return -1;
    }
    pthread_mutex_init(&m->lock, NULL);
    m->last = &m->first;
    *out = m;
    return 0;
}

void mailbox_free(struct mailbox *m)
{
    if (!m) {
        return;
    }
    close(m->fd);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void mailbox_wake(struct mailbox *m)
{
    uint64_t one = 1;
    ssize_t n = write(m->fd, &one, sizeof one);
    (void)n; /* full counter = already readable */
}

void mailbox_post(struct mailbox *m, struct mailbox_node *node)
{
    node->next = NULL;
    pthread_mutex_lock(&m->lock);
    *m->last = node;
    m->last = &node->next;
    pthread_mutex_unlock(&m->lock);
    mailbox_wake(m);
}

struct mailbox_node *mailbox_take(struct mailbox *m, int64_t timeout_ms)
{
    struct pollfd p = {.fd = m->fd, .events = POLLIN};
    int wait = timeout_ms > 1000000000 ? 1000000000 : (int)timeout_ms;
    if (poll(&p, 1, wait) < 0) {
        ASSERT(errno == EINTR);
    }
    uint64_t count;
    ssize_t n = read(m->fd, &count, sizeof count);
    (void)n;
    pthread_mutex_lock(&m->lock);
    struct mailbox_node *first = m->first;
    m->first = NULL;
    m->last = &m->first;
    pthread_mutex_unlock(&m->lock);
    return first;
}

int mailbox_fd(const struct mailbox *m)
{
    return m->fd;
}
