/* runtime/comm: messages between two members on one host. What is sent arrives, whatever the size
 * and the order inside a group; and whoever waits in vain hears for whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/deadline.h"
#include "tests/effort.h"
#include "tests/parallel/comm_gang.h"

#define LONG_MS 60000
/* A deadline by which who was woken, and has nothing to do, is asleep again. */
#define DELAY_MS 3000
/* Elements; two chunks are 262,144 fp32. */
static const int64_t sizes[] = {0, 1, 7, 4097, 131072, 262144 + 5, 600001};
static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_I32};

static unsigned char byte_of(int32_t from, int32_t to, int64_t i, int salt)
{
    return (unsigned char)(from * 31 + to * 17 + i * 7 + i / 251 + salt);
}

static void *message(int32_t from, int32_t to, size_t bytes, int salt)
{
    unsigned char *p = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        p[i] = byte_of(from, to, (int64_t)i, salt);
    }
    p[bytes] = 0x5a;
    return p;
}

/* The message, and nothing behind it. */
static bool is_message(const void *mem, int32_t from, int32_t to, size_t bytes, int salt)
{
    const unsigned char *p = mem;
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != byte_of(from, to, (int64_t)i, salt)) {
            return false;
        }
    }
    return p[bytes] == 0x5a;
}

static void *room(size_t bytes)
{
    unsigned char *p = calloc(1, bytes + 1);
    p[bytes] = 0x5a;
    return p;
}

/* ---- what arrives -----------------------------------------------------------------------------
 */

/* Each to its right, each from its left, at once. */
static void go_around(struct gang_rank *r)
{
    struct error err = {0};
    const struct comm_ops *ops = r->all->ops;
    int32_t right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        enum dtype t = types[k % 4];
        size_t bytes = (size_t)sizes[k] * dtype_size(t);
        void *out = message(r->rank, right, bytes, (int)k), *in = room(bytes);
        GANG_CHECK(r, ops->group_begin(r->all, &err) == 0);
        /* A receive first here, a send first there. */
        for (int i = 0; i < 2; i++) {
            int rc = i == r->rank % 2 ? ops->send(r->all, NULL, out, sizes[k], t, right, &err)
                                      : ops->recv(r->all, NULL, in, sizes[k], t, left, &err);
            GANG_CHECK(r, rc == 0);
        }
        GANG_CHECK(r, ops->group_end(r->all, NULL, &err) == 0);
        GANG_CHECK(r, is_message(in, left, r->rank, bytes, (int)k));
        double word = 1.0;
        if (k % 2) {
            GANG_CHECK(r, ops->all_reduce(r->all, NULL, &word, 1, DTYPE_F64, COMM_SUM, &err) == 0 &&
                              word == r->size);
        }
        free(out);
        free(in);
    }
}

static void a_ring_passes_every_size_on(void **state)
{
    (void)state;
    static const int32_t rings[] = {2, 3, 5};
    for (size_t i = 0; i < 3; i++) {
        gang_run_threads(rings[i], 0, LONG_MS, go_around, NULL);
        gang_run_processes(rings[i], 0, LONG_MS, go_around, NULL);
    }
}

static void down_and_up(struct gang_rank *r)
{
    struct error err = {0};
    const struct comm_ops *ops = r->all->ops;
    for (int round = 0; round < 30; round++) {
        size_t n = (size_t)(round * 9973 % 200000);
        if (r->rank > 0) {
            void *in = room(n * 4);
            GANG_CHECK(r,
                       ops->recv(r->all, NULL, in, (int64_t)n, DTYPE_F32, r->rank - 1, &err) == 0);
            GANG_CHECK(r, is_message(in, r->rank - 1, r->rank, n * 4, round));
            free(in);
        }
        if (r->rank < r->size - 1) {
            void *out = message(r->rank, r->rank + 1, n * 4, round);
            GANG_CHECK(r,
                       ops->send(r->all, NULL, out, (int64_t)n, DTYPE_F32, r->rank + 1, &err) == 0);
            free(out);
        }
    }
}

/* Stage by stage, as a pipeline: only the two ends of a message take part in it. */
static void a_line_hands_down_one_after_another(void **state)
{
    (void)state;
    gang_run_threads(4, 0, LONG_MS, down_and_up, NULL);
    gang_run_processes(4, 0, LONG_MS, down_and_up, NULL);
}

#define PER_PAIR 3
#define MOST_MESSAGES (2 * 5 * PER_PAIR)

struct plan_entry {
    bool is_send;
    int32_t peer, idx;
};

/* Everyone's own order; of a pair's messages in one direction the first comes first. */
static int32_t shuffled(uint64_t seed, int32_t size, struct plan_entry *out)
{
    int32_t num = 0, next[2][COMM_HOST_MAX_RANKS] = {{0}};
    for (int32_t i = 0; i < 2 * size * PER_PAIR; i++) {
        out[num++] = (struct plan_entry){.is_send = i % 2, .peer = i / 2 % size};
    }
    for (int32_t i = num - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int32_t k = (int32_t)((seed >> 33) % (uint64_t)(i + 1));
        struct plan_entry e = out[i];
        out[i] = out[k];
        out[k] = e;
    }
    for (int32_t i = 0; i < num; i++) {
        out[i].idx = next[out[i].is_send][out[i].peer]++;
    }
    return num;
}

static void all_to_all(struct gang_rank *r)
{
    struct error err = {0};
    const struct comm_ops *ops = r->all->ops;
    uint64_t seed = *(uint64_t *)r->arg;
    for (int round = 0; round < effort(40, 10, 3); round++) {
        struct plan_entry plan[MOST_MESSAGES];
        void *mem[MOST_MESSAGES];
        int32_t num = shuffled(seed + (uint64_t)(round * 16 + r->rank), r->size, plan);
        GANG_CHECK(r, ops->group_begin(r->all, &err) == 0);
        for (int32_t i = 0; i < num; i++) {
            const struct plan_entry *e = &plan[i];
            int32_t from = e->is_send ? r->rank : e->peer, to = e->is_send ? e->peer : r->rank;
            int64_t n = (from * 7 + to * 3 + e->idx + round) % 5 * 70001;
            comm_say(r->all, "piece %d", (int)e->idx);
            mem[i] = e->is_send ? message(from, to, (size_t)n * 4, e->idx) : room((size_t)n * 4);
            int rc = e->is_send ? ops->send(r->all, NULL, mem[i], n, DTYPE_F32, to, &err)
                                : ops->recv(r->all, NULL, mem[i], n, DTYPE_F32, from, &err);
            GANG_CHECK(r, rc == 0);
        }
        int rc = ops->group_end(r->all, NULL, &err);
        snprintf(r->why, sizeof r->why, "%.100s", rc ? err.text : "");
        for (int32_t i = 0; i < num; i++) {
            const struct plan_entry *e = &plan[i];
            int64_t n = (e->peer * 7 + r->rank * 3 + e->idx + round) % 5 * 70001;
            GANG_CHECK(r, rc != 0 || e->is_send ||
                              is_message(mem[i], e->peer, r->rank, (size_t)n * 4, e->idx));
            free(mem[i]);
        }
    }
}

/* All to all, and each to itself, in one group: in whatever order the members name them. */
static void a_group_needs_no_order(void **state)
{
    (void)state;
    const char *given = getenv("TANDEM_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)clock_mono_ns();
    print_message("TANDEM_SEED=%llu\n", (unsigned long long)seed);
    gang_run_threads(5, 0, LONG_MS, all_to_all, &seed);
    gang_run_processes(3, 0, LONG_MS, all_to_all, &seed);
}

static void cross(struct gang_rank *r)
{
    struct error err = {0};
    const struct comm_ops *ops = r->all->ops;
    int64_t n = 300000;
    float *a = calloc((size_t)n, 4), *b = calloc((size_t)n, 4);
    for (int round = 0; round < 5; round++) {
        if (r->rank == 0) {
            GANG_CHECK(r, ops->group_begin(r->all, &err) == 0);
            GANG_CHECK(r, ops->send(r->all, NULL, a, n, DTYPE_F32, 1, &err) == 0);
            GANG_CHECK(r, ops->send(r->all, NULL, b, n, DTYPE_F32, 2, &err) == 0);
            GANG_CHECK(r, ops->group_end(r->all, NULL, &err) == 0);
        } else if (r->rank == 1) {
            GANG_CHECK(r, ops->recv(r->all, NULL, a, n, DTYPE_F32, 2, &err) == 0);
            GANG_CHECK(r, ops->recv(r->all, NULL, b, n, DTYPE_F32, 0, &err) == 0);
        } else {
            GANG_CHECK(r, ops->recv(r->all, NULL, a, n, DTYPE_F32, 0, &err) == 0);
            GANG_CHECK(r, ops->send(r->all, NULL, a, n, DTYPE_F32, 1, &err) == 0);
        }
    }
    free(a);
    free(b);
}

/* A message doesn't wait for another of its group that nobody takes yet. */
static void a_message_is_not_held_up_by_another(void **state)
{
    (void)state;
    gang_run_threads(3, 0, LONG_MS, cross, NULL);
}

static void gather_then_send(struct gang_rank *r)
{
    struct error err = {0};
    const struct comm_ops *ops = r->all->ops;
    size_t n = 131072; /* one chunk */
    float *all = calloc(n * 3, 4), *mine = calloc(n, 4), *other = calloc(n, 4);
    for (int round = 0; round < effort(200, 40, 10); round++) {
        for (size_t i = 0; i < n; i++) {
            mine[i] = (float)(r->rank * 1000 + round);
            other[i] = -1.0f;
        }
        GANG_CHECK(r, ops->all_gather(r->all, NULL, all, mine, (int64_t)n, DTYPE_F32, &err) == 0);
        int rc = r->rank == 0   ? ops->send(r->all, NULL, other, (int64_t)n, DTYPE_F32, 1, &err)
                 : r->rank == 1 ? ops->recv(r->all, NULL, mine, (int64_t)n, DTYPE_F32, 0, &err)
                                : 0;
        GANG_CHECK(r, rc == 0 && (r->rank != 1 || mine[n - 1] == -1.0f));
        for (int32_t k = 0; k < 3; k++) {
            GANG_CHECK(r, all[n * (size_t)k] == (float)(k * 1000 + round) &&
                              all[n * (size_t)(k + 1) - 1] == (float)(k * 1000 + round));
        }
    }
    free(all);
    free(mine);
    free(other);
}

/* Others may still be reading what a member gave to a collective when it sends already. */
static void a_message_does_not_disturb_the_collective_before_it(void **state)
{
    (void)state;
    gang_run_threads(3, 0, LONG_MS, gather_then_send, NULL);
}

/* ---- what is refused --------------------------------------------------------------------------
 */

static void misuse(struct gang_rank *r)
{
    struct error err = {0};
    const struct comm_ops *ops = r->all->ops;
    double word = 0;
    GANG_CHECK(r, ops->group_end(r->all, NULL, &err) == -1 && strstr(err.text, "without one"));
    GANG_CHECK(r, ops->group_begin(r->all, &err) == 0);
    GANG_CHECK(r, ops->group_begin(r->all, &err) == -1 && strstr(err.text, "inside a group"));
    GANG_CHECK(r, ops->barrier(r->all, NULL, &err) == -1 && strstr(err.text, "only sends"));
    GANG_CHECK(r, ops->group_end(r->all, NULL, &err) == 0); /* of nothing */
    GANG_CHECK(r, ops->send(r->all, NULL, &word, 1, DTYPE_F64, r->rank, &err) == -1);
    GANG_CHECK(r, strstr(err.text, "sends to itself what it doesn't receive"));
}

static void a_group_is_of_messages_and_ends_once(void **state)
{
    (void)state;
    gang_run_threads(1, 0, LONG_MS, misuse, NULL);
    gang_run_threads(2, 0, LONG_MS, misuse, NULL);
}

static void differ(struct gang_rank *r)
{
    struct error err = {0};
    float buf[8] = {0};
    int rc = r->rank == 0 ? r->all->ops->send(r->all, NULL, buf, 5, DTYPE_F32, 1, &err)
                          : r->all->ops->recv(r->all, NULL, buf, 4, DTYPE_F32, 0, &err);
    GANG_CHECK(r, rc == -1 && err.code == ERR_FAILED_PRECONDITION);
    GANG_CHECK(r, strstr(err.text, "rank 0 called send of 5 fp32 to member 1 where rank 1 called "
                                   "receive of 4 fp32 from member 0"));
}

static void a_message_of_another_size_is_named_on_both_ends(void **state)
{
    (void)state;
    gang_run_threads(2, 0, LONG_MS, differ, NULL);
}

/* ---- who is missing ---------------------------------------------------------------------------
 */

/* 0 waits for 1, 1 for 2, 2 never comes; 3 is in another call. The deadline is 0's, which comes
 * when 1 is there. */
static void wait_in_a_chain(struct gang_rank *r)
{
    struct error err = {0};
    float buf[100] = {0};
    int rc = -1;
    comm_host_comm_name(r->all, "the pipeline (stages 0-3)", false);
    comm_say(r->all, "activations");
    if (r->rank == 0) {
        gang_await_waiter(r, 2);
        rc = r->all->ops->recv(r->all, NULL, buf, 100, DTYPE_F32, 1, &err);
    } else if (r->rank == 1) {
        rc = r->all->ops->send(r->all, NULL, buf, 100, DTYPE_F32, 2, &err);
    } else if (r->rank == 3) {
        rc = r->all->ops->recv(r->all, NULL, buf, 100, DTYPE_F32, 0, &err);
    }
    bool good = r->rank == 2 || (rc == -1 && err.code == ERR_DEADLINE_EXCEEDED &&
                                 strstr(err.text, "rank 2 did not come to send of activations (100 "
                                                  "fp32) to member 2 over the pipeline"));
    snprintf(r->why, sizeof r->why, "%.100s", good ? "" : err.text);
}

static void the_one_that_all_wait_for_is_named(void **state)
{
    (void)state;
    gang_run_threads_until(4, (int64_t[]){DELAY_MS, LONG_MS, LONG_MS, LONG_MS}, wait_in_a_chain,
                           NULL);
}

static void face(struct gang_rank *r)
{
    struct error err = {0};
    float buf[4] = {0};
    if (r->rank == 0) {
        gang_await_waiter(r, 0);
    }
    GANG_CHECK(r, r->all->ops->recv(r->all, NULL, buf, 4, DTYPE_F32, 1 - r->rank, &err) == -1);
    GANG_CHECK(r, strstr(err.text, "members wait for each other in receive of 4 fp32"));
}

static void members_that_wait_for_each_other_hear_it(void **state)
{
    (void)state;
    gang_run_threads_until(2, (int64_t[]){DELAY_MS, LONG_MS}, face, NULL);
}

struct rounds {
    _Atomic int num[8];
};

static void exchange_until_it_fails(struct gang_rank *r)
{
    struct error err = {0};
    struct rounds *rounds = r->arg;
    const struct comm_ops *ops = r->all->ops;
    int32_t right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    int64_t n = 200000;
    float *out = calloc((size_t)n, 4), *in = calloc((size_t)n, 4);
    int rc = 0;
    while (rc == 0) {
        GANG_CHECK(r, ops->group_begin(r->all, &err) == 0);
        GANG_CHECK(r, ops->send(r->all, NULL, out, n, DTYPE_F32, right, &err) == 0);
        GANG_CHECK(r, ops->recv(r->all, NULL, in, n, DTYPE_F32, left, &err) == 0);
        rc = ops->group_end(r->all, NULL, &err);
        atomic_fetch_add(&rounds->num[r->rank], 1);
    }
    fprintf(stderr, "%s\n", err.text);
    GANG_CHECK(r, strstr(err.text, "rank 1 "));
}

static void hit_one(int sig, int64_t deadline_ms)
{
    pid_t pids[3];
    int fd;
    struct rounds *rounds =
        mmap(NULL, sizeof *rounds, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t bytes = comm_host_segment_bytes(3, 0);
    assert_int_equal(comm_host_segment_new(3, 0, &fd, NULL), 0);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(rounds != MAP_FAILED && segment != MAP_FAILED);
    gang_start_until(3, fd, deadline_ms, exchange_until_it_fails, rounds, pids);
    WAIT_UNTIL(atomic_load(&rounds->num[1]) >= 3, "three rounds of rank 1");
    assert_int_equal(kill(pids[1], sig), 0);
    if (sig == SIGKILL) {
        gang_wait(pids[1], 1);
        comm_host_segment_abort(segment, 1, "rank 1 was killed by signal 9");
    }
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(gang_wait(pids[i], i), 0);
    }
    if (sig != SIGKILL) {
        kill(pids[1], SIGKILL);
        gang_wait(pids[1], 1);
    }
    munmap(segment, bytes);
    munmap(rounds, sizeof *rounds);
    close(fd);
}

/* Long before the deadline, which is an hour. */
static void a_killed_peer_frees_the_others(void **state)
{
    (void)state;
    hit_one(SIGKILL, 3600 * 1000);
}

static void a_stopped_peer_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int i = 0; i < effort(20, 2, 1); i++) {
        hit_one(SIGSTOP, 3000);
    }
}

static void abort_or_wait(struct gang_rank *r)
{
    struct error err = {0};
    float buf[4] = {0};
    if (r->rank == 0) {
        comm_host_abort(r->world, "rank 0: the disk is full");
    }
    GANG_CHECK(r, r->all->ops->recv(r->all, NULL, buf, 4, DTYPE_F32, 0, &err) == -1 || !r->rank);
    GANG_CHECK(r, r->rank == 0 || strstr(err.text, "rank 0: the disk is full"));
}

static void an_abort_wakes_who_waits_for_a_message(void **state)
{
    (void)state;
    gang_run_threads(3, 0, 3600 * 1000, abort_or_wait, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_passes_every_size_on),
        cmocka_unit_test(a_line_hands_down_one_after_another),
        cmocka_unit_test(a_group_needs_no_order),
        cmocka_unit_test(a_message_is_not_held_up_by_another),
        cmocka_unit_test(a_message_does_not_disturb_the_collective_before_it),
        cmocka_unit_test(a_group_is_of_messages_and_ends_once),
        cmocka_unit_test(a_message_of_another_size_is_named_on_both_ends),
        cmocka_unit_test(the_one_that_all_wait_for_is_named),
        cmocka_unit_test(members_that_wait_for_each_other_hear_it),
        cmocka_unit_test(a_killed_peer_frees_the_others),
        cmocka_unit_test(a_stopped_peer_is_named_at_the_deadline),
        cmocka_unit_test(an_abort_wakes_who_waits_for_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
