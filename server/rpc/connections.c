#include "server/rpc/connections.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct connections {
    pthread_mutex_t lock;
    ino_t *inodes; /* owned; by descriptor: the socket that was given last, 0 = none was */
    int num;
};

struct connections *connections_new(void)
{
    struct connections *c = calloc(1, sizeof *c);
    if (c) {
        pthread_mutex_init(&c->lock, NULL);
    }
    return c;
}

void connections_free(struct connections *c)
{
    if (c) {
        pthread_mutex_destroy(&c->lock);
        free(c->inodes);
        free(c);
    }
}

/* Lock held. */
static bool grow(struct connections *c, int fd)
{
    int num = fd < 64 ? 128 : 2 * fd;
    ino_t *more = realloc(c->inodes, (size_t)num * sizeof *more);
    if (more) {
        memset(more + c->num, 0, (size_t)(num - c->num) * sizeof *more);
        c->inodes = more;
        c->num = num;
    }
    return more != NULL;
}

void connections_note(struct connections *c, int fd)
{
    struct stat st;
    pthread_mutex_lock(&c->lock);
    if (fstat(fd, &st) == 0 && (fd < c->num || grow(c, fd))) {
        c->inodes[fd] = st.st_ino;
    }
    pthread_mutex_unlock(&c->lock);
}

void connections_hang_up(struct connections *c)
{
    pthread_mutex_lock(&c->lock);
    for (int fd = 0; fd < c->num; fd++) {
        struct stat st;
        /* Another socket or file has its number, once core has closed it. */
        if (c->inodes[fd] && fstat(fd, &st) == 0 && st.st_ino == c->inodes[fd]) {
            shutdown(fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&c->lock);
}
