#include "runtime/comm/comm_host_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SEGMENT_MAGIC 0x31746e6d67657374u /* "tsegmnt1" */
#define PAGE_BYTES ((size_t)4096)
/* For the reason of an abort, whose writer may be stopped. Who only looks on, tandem-node, has a
 * gang to end meanwhile. */
#define REASON_MS 5000
#define LOOK_REASON_MS 500

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Every rank in SEGMENT_COMMS_PER_RANK communicators of two: more slots can't be asked for. */
static uint32_t slots_for(int32_t num_ranks)
{
    uint32_t n = (uint32_t)num_ranks * (SEGMENT_COMMS_PER_RANK / 2);
    return n < SEGMENT_COMMS_PER_RANK ? SEGMENT_COMMS_PER_RANK : n;
}

static void header_fill(struct segment_header *h, int32_t num_ranks, size_t area_bytes)
{
    h->num_ranks = num_ranks;
    h->num_slots = slots_for(num_ranks);
    h->area_bytes = round_up(area_bytes, PAGE_BYTES);
}

size_t segment_keys_offset(void)
{
    return round_up(sizeof(struct segment_header), PAGE_BYTES);
}

size_t segment_slots_offset(const struct segment_header *h)
{
    return round_up(segment_keys_offset() + h->num_slots * sizeof(uint64_t), PAGE_BYTES);
}

size_t segment_staging_offset(const struct segment_header *h, int32_t rank)
{
    size_t first = round_up(
        segment_slots_offset(h) + h->num_slots * segment_slot_bytes(h->num_ranks), PAGE_BYTES);
    size_t each = SEGMENT_COMMS_PER_RANK * SEGMENT_STAGING_BYTES + h->area_bytes;
    return first + (size_t)rank * each;
}

size_t segment_area_offset(const struct segment_header *h, int32_t rank)
{
    return segment_staging_offset(h, rank) + SEGMENT_COMMS_PER_RANK * SEGMENT_STAGING_BYTES;
}

size_t comm_host_segment_bytes(int32_t num_ranks, size_t area_bytes)
{
    ASSERT(num_ranks >= 1 && num_ranks <= COMM_HOST_MAX_RANKS);
    struct segment_header h = {0};
    header_fill(&h, num_ranks, area_bytes);
    return segment_staging_offset(&h, num_ranks);
}

void comm_host_segment_init(void *segment, int32_t num_ranks, size_t area_bytes)
{
    struct segment_header *h = segment;
    header_fill(h, num_ranks, area_bytes);
    h->total_bytes = comm_host_segment_bytes(num_ranks, area_bytes);
    h->culprit = -1;
    h->magic = SEGMENT_MAGIC;
}

static int segment_make(int fd, int32_t num_ranks, size_t area_bytes, struct error *err)
{
    size_t bytes = comm_host_segment_bytes(num_ranks, area_bytes);
    if (ftruncate(fd, (off_t)bytes) != 0) {
        return errno == EFBIG ? error_set(err, ERR_RESOURCE_EXHAUSTED,
                                          "the ranks' shared memory of %zu bytes counts as a file, "
                                          "and files are limited to less here: raise that limit "
                                          "(ulimit -f, LimitFSIZE=)",
                                          bytes)
                              : error_errno(err, errno, "shared segment of %zu bytes", bytes);
    }
    void *head = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED) {
        return error_errno(err, errno, "map the shared segment");
    }
    comm_host_segment_init(head, num_ranks, area_bytes);
    munmap(head, PAGE_BYTES);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return error_errno(err, errno, "seal the shared segment");
    }
    return 0;
}

int comm_host_segment_new(int32_t num_ranks, size_t area_bytes, int *fd, struct error *err)
{
    if (num_ranks < 1 || num_ranks > COMM_HOST_MAX_RANKS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%d ranks on one host; at most %d can be",
                         (int)num_ranks, COMM_HOST_MAX_RANKS);
    }
    if (area_bytes > ((size_t)1 << 46) / (size_t)num_ranks) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "a shared area of %zu bytes for each of %d ranks", area_bytes,
                         (int)num_ranks);
    }
    int made = memfd_create("tandem-gang", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) {
        return error_errno(err, errno, "make the shared segment");
    }
    if (segment_make(made, num_ranks, area_bytes, err) != 0) {
        close(made);
        return -1;
    }
    *fd = made;
    return 0;
}

/* ---- slots ------------------------------------------------------------------------------------
 */

_Atomic uint64_t *segment_keys(struct segment_header *h)
{
    return (_Atomic uint64_t *)(void *)((char *)h + segment_keys_offset());
}

struct segment_slot *segment_slot_at(struct segment_header *h, uint32_t slot_idx)
{
    size_t offset = segment_slots_offset(h) + slot_idx * segment_slot_bytes(h->num_ranks);
    return (struct segment_slot *)(void *)((char *)h + offset);
}

struct segment_slot *segment_slot_claim(struct segment_header *h, uint64_t key)
{
    _Atomic uint64_t *keys = segment_keys(h);
    for (uint32_t i = 0; i < h->num_slots; i++) {
        uint32_t at = (uint32_t)((key + i) % h->num_slots);
        uint64_t seen = 0;
        if (atomic_compare_exchange_strong(&keys[at], &seen, key) || seen == key) {
            return segment_slot_at(h, at);
        }
    }
    return NULL;
}

/* ---- futexes and the abort word ---------------------------------------------------------------
 */

void segment_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void segment_futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void segment_name(struct segment_member *m, const char *name, bool background)
{
    snprintf(m->name, sizeof m->name, "%s", name);
    atomic_store(&m->named, background ? SEGMENT_BACKGROUND : SEGMENT_NAMED);
}

/* Relaxed: who looks on takes nothing for granted. */
void segment_show(struct segment_member *m, const struct segment_call *call)
{
    uint64_t words[sizeof m->seen / sizeof *m->seen];
    memcpy(words, call, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        atomic_store_explicit(&m->seen[i], words[i], memory_order_relaxed);
    }
}

void segment_ring(struct segment_member *m)
{
    atomic_fetch_add(&m->bell, 1);
    if (atomic_load(&m->bell_sleepers) != 0) {
        segment_futex_wake_all(&m->bell);
    }
}

bool segment_is_aborted(const struct segment_header *h)
{
    return atomic_load(&h->abort_state) != SEGMENT_SOUND;
}

/* The bit goes into the word that sleepers wait on: one that is about to sleep doesn't. A rank that
 * claims its slot after our walk sees the abort word before it waits. */
void segment_abort(struct segment_header *h, enum error_code code, int32_t culprit,
                   const char *reason)
{
    uint32_t sound = SEGMENT_SOUND;
    if (!atomic_compare_exchange_strong(&h->abort_state, &sound, SEGMENT_ABORT_CLAIMED)) {
        return;
    }
    h->culprit = culprit;
    h->code = (int32_t)code;
    size_t n = 0;
    while (n < SEGMENT_REASON_MAX - 1 && reason[n]) {
        h->reason[n] = reason[n];
        n++;
    }
    h->reason[n] = 0;
    atomic_store(&h->abort_state, SEGMENT_ABORTED);
    segment_futex_wake_all(&h->abort_state);
    _Atomic uint64_t *keys = segment_keys(h);
    for (uint32_t i = 0; i < h->num_slots; i++) {
        if (atomic_load(&keys[i]) != 0) {
            struct segment_slot *slot = segment_slot_at(h, i);
            atomic_fetch_or(&slot->generation, 1);
            segment_futex_wake_all(&slot->generation);
            int32_t size = atomic_load(&slot->size);
            for (int32_t m = 0; m < size && m < h->num_ranks; m++) {
                segment_ring(&slot->members[m]);
            }
        }
    }
}

void comm_host_segment_abort(void *segment, int32_t culprit_rank, const char *reason)
{
    segment_abort(segment, ERR_ABORTED, culprit_rank, reason);
}

static uint32_t segment_await_reason(struct segment_header *h, int64_t at_most_ms)
{
    /* The reason follows at once, unless its writer was killed in the middle of it; or stopped. */
    int64_t until = clock_mono_ns() + at_most_ms * INT64_C(1000000);
    uint32_t state;
    while ((state = atomic_load(&h->abort_state)) == SEGMENT_ABORT_CLAIMED &&
           clock_mono_ns() < until) {
        segment_futex_wait(&h->abort_state, SEGMENT_ABORT_CLAIMED, until);
    }
    return state;
}

bool comm_host_segment_culprit(void *segment, int32_t *culprit_rank, char *reason, size_t size)
{
    struct segment_header *h = segment;
    if (!segment_is_aborted(h)) {
        return false;
    }
    bool whole = segment_await_reason(h, LOOK_REASON_MS) == SEGMENT_ABORTED;
    *culprit_rank = whole ? h->culprit : -1;
    snprintf(reason, size, "%.*s", SEGMENT_REASON_MAX,
             whole ? h->reason : "a rank stopped the gang");
    return true;
}

int segment_abort_error(struct segment_header *h, const char *doing, struct error *err)
{
    if (segment_await_reason(h, REASON_MS) != SEGMENT_ABORTED) {
        return error_set(err, ERR_ABORTED, "%s: the gang is being stopped", doing);
    }
    return error_set(err, (enum error_code)h->code, "%s: %.*s", doing, SEGMENT_REASON_MAX,
                     h->reason);
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

struct mapping {
    struct mapping *next;
    dev_t dev;
    ino_t ino;
    int32_t users;
    struct segment_header *head;
};

/* The process's own table of what it has mapped: ranks may be its threads. */
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

static int header_check(const struct segment_header *h, size_t file_bytes, int32_t num_ranks,
                        struct error *err)
{
    if (file_bytes < sizeof *h || h->magic != SEGMENT_MAGIC || h->total_bytes != file_bytes ||
        h->area_bytes > file_bytes) {
        return error_set(err, ERR_INVALID_ARGUMENT, "the descriptor isn't a gang's shared segment");
    }
    if (h->num_ranks != num_ranks || h->num_slots != slots_for(num_ranks)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "the shared segment is for %d ranks, not %d",
                         (int)h->num_ranks, (int)num_ranks);
    }
    return 0;
}

static int mapping_new(int fd, const struct stat *st, int32_t num_ranks, struct mapping **out,
                       struct error *err)
{
    struct mapping *m = calloc(1, sizeof *m);
    if (!m) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "map the shared segment: out of memory");
    }
    size_t bytes = (size_t)st->st_size;
    void *head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED) {
        free(m);
        return error_errno(err, errno, "map the shared segment of %zu bytes", bytes);
    }
    if (header_check(head, bytes, num_ranks, err) != 0) {
        munmap(head, bytes);
        free(m);
        return -1;
    }
    *m = (struct mapping){.dev = st->st_dev, .ino = st->st_ino, .head = head};
    *out = m;
    return 0;
}

static struct mapping *mapping_find(const struct stat *st)
{
    struct mapping *m = mappings;
    while (m && (m->dev != st->st_dev || m->ino != st->st_ino)) {
        m = m->next;
    }
    return m;
}

int segment_map(int fd, int32_t num_ranks, struct segment_header **out, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return error_errno(err, errno, "the shared segment's descriptor");
    }
    if (st.st_size < (off_t)PAGE_BYTES) {
        return error_set(err, ERR_INVALID_ARGUMENT, "the descriptor isn't a gang's shared segment");
    }
    pthread_mutex_lock(&mappings_lock);
    int rc = 0;
    struct mapping *m = mapping_find(&st);
    if (m) {
        rc = header_check(m->head, (size_t)st.st_size, num_ranks, err);
    } else {
        rc = mapping_new(fd, &st, num_ranks, &m, err);
        if (rc == 0) {
            m->next = mappings;
            mappings = m;
        }
    }
    if (rc == 0) {
        m->users++;
        *out = m->head;
    }
    pthread_mutex_unlock(&mappings_lock);
    return rc;
}

void segment_unmap(struct segment_header *h)
{
    pthread_mutex_lock(&mappings_lock);
    struct mapping **at = &mappings;
    while (*at && (*at)->head != h) {
        at = &(*at)->next;
    }
    ASSERT(*at);
    struct mapping *m = *at;
    if (--m->users == 0) {
        *at = m->next;
        munmap(h, h->total_bytes);
        free(m);
    }
    pthread_mutex_unlock(&mappings_lock);
}
