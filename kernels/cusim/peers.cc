#include "kernels/cusim/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "kernels/cusim/machine.h"

namespace cusim
{

struct member {
    std::atomic<uint64_t> posted, finished;
    struct call_sign signs[2];
    int pid;
};

struct pair {
    std::atomic<uint64_t> sent, received;
    struct call_sign sign;
};

struct segment {
    std::atomic<int> num_joined;
    struct member members[MAX_PEERS];
    struct pair pairs[MAX_PEERS][MAX_PEERS];
};

struct peers {
    struct segment *shared;
    char *slots;
    size_t bytes;
    int fd, num, rank;
    bool are_in;
    char name[100];
};

#define HEADER_BYTES ((sizeof(struct segment) + 65535) & ~(size_t)65535)

/* The file is as large as all slots could be, and holds what was written. */
struct peers *peers_open(const char *name, int num_ranks, int rank)
{
    struct peers *p = (struct peers *)calloc(1, sizeof *p);
    size_t num_slots = (size_t)num_ranks * 2 + (size_t)(num_ranks * num_ranks);
    p->num = num_ranks;
    p->rank = rank;
    p->bytes = HEADER_BYTES + num_slots * PEER_SLOT_BYTES;
    p->fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->fd < 0 || ftruncate(p->fd, (off_t)p->bytes) != 0) {
        fail("nccl: no shared memory for a communicator");
    }
    void *mem =
        mmap(nullptr, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p->fd, 0);
    if (mem == MAP_FAILED) {
        fail("nccl: no address space for a communicator");
    }
    p->shared = (struct segment *)mem;
    p->slots = (char *)mem + HEADER_BYTES;
    p->shared->members[rank].pid = getpid();
    snprintf(p->name, sizeof p->name, "%s", name);
    p->shared->num_joined++;
    return p;
}

/* Then nobody needs the name any more. */
bool peers_are_in(struct peers *p)
{
    if (!p->are_in && p->shared->num_joined >= p->num) {
        p->are_in = true;
        shm_unlink(p->name);
    }
    return p->are_in;
}

void peers_close(struct peers *p)
{
    if (!p->are_in) {
        shm_unlink(p->name);
    }
    munmap((void *)p->shared, p->bytes);
    close(p->fd);
    free(p);
}

int peers_count(const struct peers *p)
{
    return p->num;
}

int peers_rank(const struct peers *p)
{
    return p->rank;
}

/* Memory is there before it is touched: a full disk of shared memory would be a signal. */
static void *slot(struct peers *p, size_t index, size_t bytes)
{
    if (bytes > PEER_SLOT_BYTES) {
        fail("nccl: %zu bytes of one rank in one call, %zu at most", bytes, PEER_SLOT_BYTES);
    }
    size_t offset = index * PEER_SLOT_BYTES;
    if (bytes > 0 && posix_fallocate(p->fd, (off_t)(HEADER_BYTES + offset), (off_t)bytes) != 0) {
        fail("nccl: no shared memory for %zu bytes", bytes);
    }
    return p->slots + offset;
}

void *peers_slot(struct peers *p, int rank, uint64_t number, size_t bytes)
{
    return slot(p, (size_t)rank * 2 + number % 2, bytes);
}

bool peers_may_post(const struct peers *p, uint64_t number)
{
    for (int r = 0; r < p->num; r++) {
        if (p->shared->members[r].finished + 2 < number) {
            return false;
        }
    }
    return true;
}

void peers_post(struct peers *p, uint64_t number, const struct call_sign *sign)
{
    struct member *m = &p->shared->members[p->rank];
    m->signs[number % 2] = *sign;
    m->posted = number;
}

int peers_missing(const struct peers *p, uint64_t number)
{
    for (int r = 0; r < p->num; r++) {
        if (p->shared->members[r].posted < number) {
            return r;
        }
    }
    return -1;
}

struct call_sign peers_sign(const struct peers *p, int rank, uint64_t number)
{
    return p->shared->members[rank].signs[number % 2];
}

void peers_finish(struct peers *p, uint64_t number)
{
    p->shared->members[p->rank].finished = number;
}

uint64_t peers_last_post(const struct peers *p, int rank)
{
    return p->shared->members[rank].posted;
}

bool peers_is_gone(const struct peers *p, int rank)
{
    return kill(p->shared->members[rank].pid, 0) != 0 && errno == ESRCH;
}

/* ---- pairs ---- */

bool pair_may_send(const struct peers *p, int to, uint64_t number)
{
    return p->shared->pairs[p->rank][to].received + 1 >= number;
}

void pair_send(struct peers *p, int to, uint64_t number, const struct call_sign *sign)
{
    struct pair *pair = &p->shared->pairs[p->rank][to];
    pair->sign = *sign;
    pair->sent = number;
}

bool pair_was_received(const struct peers *p, int to, uint64_t number)
{
    return p->shared->pairs[p->rank][to].received >= number;
}

bool pair_has_sent(const struct peers *p, int from, uint64_t number)
{
    return p->shared->pairs[from][p->rank].sent >= number;
}

struct call_sign pair_sign(const struct peers *p, int from)
{
    return p->shared->pairs[from][p->rank].sign;
}

void pair_receive(struct peers *p, int from, uint64_t number)
{
    p->shared->pairs[from][p->rank].received = number;
}

void *pair_slot(struct peers *p, int from, int to, size_t bytes)
{
    return slot(p, (size_t)p->num * 2 + (size_t)(from * p->num + to), bytes);
}

} // namespace cusim
