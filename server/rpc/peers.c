#include "server/rpc/peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    NUM_BUCKETS = 1024,
    FORGET_MS = 5000, /* far longer than a call waits to be looked at */
};

struct place {
    struct place *next;
    uint8_t key[16];
    int num;
};

struct number {
    struct peer_address address;
    enum { NUMBER_FREE, NUMBER_BOUND, NUMBER_ENDED } state;
    int64_t ended_ms;
};

struct peers {
    int max_connections, max_per_address;
    pthread_mutex_t lock; /* guards what follows */
    int num_connections;
    struct place *buckets[NUM_BUCKETS]; /* owned; places with a connection */
    struct number *numbers;             /* owned; by descriptor */
    int num_numbers;
};

/* ---- addresses ----------------------------------------------------------------------------- */

struct peer_address peer_address_of(const struct sockaddr_storage *sa)
{
    struct peer_address a = {{0}};
    if (sa->ss_family == AF_INET6) {
        memcpy(a.bytes, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
    } else if (sa->ss_family == AF_INET) {
        a.bytes[10] = a.bytes[11] = 0xff;
        memcpy(a.bytes + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
    }
    return a;
}

static bool is_v4(const struct peer_address *a)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a->bytes, prefix, sizeof prefix) == 0;
}

void peer_address_text(const struct peer_address *a, char out[PEER_TEXT_SIZE])
{
    bool v4 = is_v4(a);
    if (!inet_ntop(v4 ? AF_INET : AF_INET6, a->bytes + (v4 ? 12 : 0), out, PEER_TEXT_SIZE)) {
        snprintf(out, PEER_TEXT_SIZE, "?");
    }
}

bool peer_address_is_loopback(const struct peer_address *a)
{
    static const uint8_t one[16] = {[15] = 1};
    return is_v4(a) ? a->bytes[12] == 127 : memcmp(a->bytes, one, sizeof one) == 0;
}

/* ---- how many ------------------------------------------------------------------------------ */

int peers_new(struct peers **out, int max_connections, int max_per_address, struct error *err)
{
    struct peers *p = calloc(1, sizeof *p);
    if (!p) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    pthread_mutex_init(&p->lock, NULL);
    p->max_connections = max_connections;
    p->max_per_address = max_per_address;
    *out = p;
    return 0;
}

void peers_free(struct peers *p)
{
    if (!p) {
        return;
    }
    for (int i = 0; i < NUM_BUCKETS; i++) {
        while (p->buckets[i]) {
            struct place *gone = p->buckets[i];
            p->buckets[i] = gone->next;
            free(gone);
        }
    }
    free(p->numbers);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Where the place of an address hangs, or would. */
static struct place **place_of(struct peers *p, const struct peer_address *a, uint8_t key[16])
{
    memset(key, 0, 16);
    memcpy(key, a->bytes, is_v4(a) ? 16 : 8);
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 16; i++) {
        hash = (hash ^ key[i]) * 16777619u;
    }
    struct place **at = &p->buckets[hash % NUM_BUCKETS];
    while (*at && memcmp((*at)->key, key, 16) != 0) {
        at = &(*at)->next;
    }
    return at;
}

bool peers_enter(struct peers *p, const struct peer_address *a, const char **why)
{
    uint8_t key[16];
    bool limited = p->max_per_address > 0 && !peer_address_is_loopback(a);
    pthread_mutex_lock(&p->lock);
    struct place **at = place_of(p, a, key);
    *why = NULL;
    if (p->max_connections > 0 && p->num_connections >= p->max_connections) {
        *why = "limits.connections is reached";
    } else if (limited && *at && (*at)->num >= p->max_per_address) {
        *why = "limits.connections_per_address is reached";
    } else {
        if (!*at) {
            *at = calloc(1, sizeof **at);
            ASSERT(*at);
            memcpy((*at)->key, key, 16);
        }
        (*at)->num++;
        p->num_connections++;
    }
    pthread_mutex_unlock(&p->lock);
    return !*why;
}

void peers_leave(struct peers *p, const struct peer_address *a)
{
    uint8_t key[16];
    pthread_mutex_lock(&p->lock);
    struct place **at = place_of(p, a, key);
    ASSERT(*at && (*at)->num > 0);
    p->num_connections--;
    if (--(*at)->num == 0) {
        struct place *gone = *at;
        *at = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&p->lock);
}

int peers_count(struct peers *p)
{
    pthread_mutex_lock(&p->lock);
    int n = p->num_connections;
    pthread_mutex_unlock(&p->lock);
    return n;
}

/* ---- by which number ----------------------------------------------------------------------- */

/* Lock held. */
static bool remembered(const struct peers *p, int fd)
{
    if (fd >= p->num_numbers) {
        return false;
    }
    const struct number *n = &p->numbers[fd];
    return n->state == NUMBER_BOUND ||
           (n->state == NUMBER_ENDED && clock_mono_ms() - n->ended_ms < FORGET_MS);
}

/* Lock held. */
static struct number *number_at(struct peers *p, int fd)
{
    if (fd >= p->num_numbers) {
        int num = fd + 256;
        struct number *grown = realloc(p->numbers, (size_t)num * sizeof *grown);
        ASSERT(grown);
        memset(grown + p->num_numbers, 0, (size_t)(num - p->num_numbers) * sizeof *grown);
        p->numbers = grown;
        p->num_numbers = num;
    }
    return &p->numbers[fd];
}

/* A frame of its own, by which tests/tsan.supp knows it, like take_connection in acceptor.c. */
__attribute__((noinline)) static int renumber(int fd, int from)
{
    int other = fcntl(fd, F_DUPFD_CLOEXEC, from);
    close(fd);
    return other;
}

int peers_bind(struct peers *p, int fd, const struct peer_address *a)
{
    pthread_mutex_lock(&p->lock);
    while (fd >= 0 && remembered(p, fd)) {
        int next = fd + 1;
        while (remembered(p, next)) {
            next++;
        }
        fd = renumber(fd, next);
    }
    if (fd >= 0) {
        *number_at(p, fd) = (struct number){.address = *a, .state = NUMBER_BOUND};
    }
    pthread_mutex_unlock(&p->lock);
    return fd;
}

void peers_unbind(struct peers *p, int fd)
{
    pthread_mutex_lock(&p->lock);
    struct number *n = number_at(p, fd);
    n->state = NUMBER_ENDED;
    n->ended_ms = clock_mono_ms();
    pthread_mutex_unlock(&p->lock);
}

bool peers_find(struct peers *p, int fd, char out[PEER_TEXT_SIZE])
{
    pthread_mutex_lock(&p->lock);
    bool found = fd >= 0 && fd < p->num_numbers && p->numbers[fd].state != NUMBER_FREE;
    if (found) {
        peer_address_text(&p->numbers[fd].address, out);
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}
