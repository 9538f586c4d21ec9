#include "server/rpc/crowd.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { BUCKETS = 4096 };

struct crowd_member {
    struct crowd *crowd;
    struct crowd_member *next, **link; /* in its bucket */
    int32_t num_calls;
    double resets; /* less what the time since allows */
    int64_t reset_ms;
    int fd;      /* core's; -1 = not known, or hung up on */
    ino_t inode; /* by which it is known again: the number may have found another use */
    atomic_size_t bytes;
    char name[]; /* ends with 0 */
};

struct crowd {
    atomic_size_t bytes;
    struct crowd_member *buckets[BUCKETS];
};

struct crowd *crowd_new(void)
{
    return calloc(1, sizeof(struct crowd));
}

void crowd_free(struct crowd *c)
{
    for (int i = 0; c && i < BUCKETS; i++) {
        while (c->buckets[i]) {
            struct crowd_member *m = c->buckets[i];
            c->buckets[i] = m->next;
            free(m);
        }
    }
    free(c);
}

/* FNV-1a. */
static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) {
        h = (h ^ (unsigned char)*name) * 16777619u;
    }
    return h;
}

static struct crowd_member *add(struct crowd *c, struct crowd_member **bucket, const char *name)
{
    size_t size = strlen(name) + 1;
    struct crowd_member *m = malloc(sizeof *m + size);
    if (m) {
        struct stat st;
        *m = (struct crowd_member){.crowd = c, .next = *bucket, .link = bucket, .fd = -1};
        if (strncmp(name, "fd:", 3) == 0 && fstat(atoi(name + 3), &st) == 0) {
            m->fd = atoi(name + 3);
            m->inode = st.st_ino;
        }
        memcpy(m->name, name, size);
        if (m->next) {
            m->next->link = &m->next;
        }
        *bucket = m;
    }
    return m;
}

struct crowd_member *crowd_enter(struct crowd *c, const char *name)
{
    struct crowd_member **bucket = &c->buckets[hash(name) % BUCKETS], *m = *bucket;
    while (m && strcmp(m->name, name) != 0) {
        m = m->next;
    }
    m = m ? m : add(c, bucket, name);
    if (m) {
        m->num_calls++;
    }
    return m;
}

int32_t crowd_calls(const struct crowd_member *m)
{
    return m->num_calls;
}

bool crowd_reset(struct crowd_member *m, int64_t opened_ms, int64_t now_ms)
{
    if (now_ms - opened_ms > CROWD_RESET_MS) {
        return true;
    }
    double allowed = (double)(now_ms - m->reset_ms) * CROWD_RESETS_PER_S / 1000;
    m->resets = (m->resets > allowed ? m->resets - allowed : 0) + 1;
    m->reset_ms = now_ms;
    return m->resets <= CROWD_RESETS_MAX;
}

void crowd_hang_up(struct crowd_member *m)
{
    struct stat st;
    if (m->fd >= 0 && fstat(m->fd, &st) == 0 && st.st_ino == m->inode) {
        shutdown(m->fd, SHUT_RDWR);
    }
    m->fd = -1;
}

void crowd_leave(struct crowd_member *m)
{
    if (!m || --m->num_calls > 0) {
        return;
    }
    *m->link = m->next;
    if (m->next) {
        m->next->link = m->link;
    }
    free(m);
}

bool crowd_charge(struct crowd_member *m, size_t bytes)
{
    if (!m) {
        return true;
    }
    size_t mine = atomic_fetch_add(&m->bytes, bytes) + bytes;
    size_t all = atomic_fetch_add(&m->crowd->bytes, bytes) + bytes;
    if (mine <= CROWD_MEMBER_MAX_BYTES && all <= CROWD_MAX_BYTES) {
        return true;
    }
    crowd_discharge(m, bytes);
    return false;
}

void crowd_discharge(struct crowd_member *m, size_t bytes)
{
    if (m) {
        atomic_fetch_sub(&m->bytes, bytes);
        atomic_fetch_sub(&m->crowd->bytes, bytes);
    }
}
