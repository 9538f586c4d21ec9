/* runtime/comm/: collectives between the ranks of one host, as threads and as processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/rng.h"
#include "tests/deadline.h"
#include "tests/effort.h"
#include "tests/parallel/comm_gang.h"
#include "tests/parallel/rounding.h"

#define AREA_BYTES ((size_t)8 << 20)
#define LONG_MS 60000

/* Values that make the order of a sum visible in its bits. */
static double values[8191];
static float low_values[8191]; /* in bf16 */

static void values_init(void)
{
    for (uint64_t i = 0; i < sizeof values / sizeof *values; i++) {
        values[i] = (rng_uniform(7, 0, i) - 0.5) * exp2((double)(rng_u64(8, 0, i) % 40));
        low_values[i] = rounding_bf16((float)values[i]);
    }
}

static double value_of(int32_t rank, int64_t i, enum dtype t)
{
    int64_t at = (i * 3 + rank * 977) % 8191;
    return t == DTYPE_BF16 ? (double)low_values[at] : values[at];
}

static void put(void *buf, int64_t i, enum dtype t, double x)
{
    if (t == DTYPE_F64) {
        ((double *)buf)[i] = x;
    } else if (t == DTYPE_BF16) {
        float narrow = (float)x;
        memcpy((uint16_t *)buf + i, (const char *)&narrow + 2, 2);
    } else {
        ((float *)buf)[i] = (float)x;
    }
}

static void fill(void *buf, int32_t rank, int64_t n, enum dtype t)
{
    for (int64_t i = 0; i < n; i++) {
        put(buf, i, t, value_of(rank, i, t));
    }
}

static bool is_bf16(const void *got, int64_t i, float want)
{
    uint32_t bits;
    float rounded = rounding_bf16(want);
    memcpy(&bits, &rounded, sizeof bits);
    return ((const uint16_t *)got)[i] == bits >> 16;
}

/* Is element i of got the fold of the members' element j, from the first member on? bf16 is folded
 * in fp32 and rounded once. */
static bool is_fold(const void *got, int64_t i, int64_t j, const int32_t *members, int32_t num,
                    enum dtype t, enum comm_op op)
{
    double wide = 0;
    float narrow = 0;
    for (int32_t m = 0; m < num; m++) {
        double x = value_of(members[m], j, t);
        float y = (float)x;
        wide = m == 0 ? x : op == COMM_SUM ? wide + x : fmax(wide, x);
        narrow = m == 0 ? y : op == COMM_SUM ? narrow + y : fmaxf(narrow, y);
    }
    if (t == DTYPE_BF16) {
        return is_bf16(got, i, narrow);
    }
    return t == DTYPE_F64 ? ((const double *)got)[i] == wide : ((const float *)got)[i] == narrow;
}

/* ---- all_reduce -------------------------------------------------------------------------------
 */

enum placement { IN_AREA, ELSEWHERE, MIXED };

static void reduce_once(struct gang_rank *r, void *buf, int64_t n, enum dtype t, enum comm_op op)
{
    struct error err = {0};
    int32_t members[COMM_HOST_MAX_RANKS];
    for (int32_t i = 0; i < r->size; i++) {
        members[i] = i;
    }
    fill(buf, r->rank, n, t);
    GANG_CHECK(r, r->all->ops->all_reduce(r->all, NULL, buf, n, t, op, &err) == 0);
    int64_t step = n > 5000 ? 97 : 1;
    for (int64_t i = 0; i < n; i += step) {
        GANG_CHECK(r, is_fold(buf, i, i, members, r->size, t, op));
    }
    GANG_CHECK(r, n == 0 || is_fold(buf, n - 1, n - 1, members, r->size, t, op));
}

static void reduce_everything(struct gang_rank *r)
{
    static const int64_t counts[] = {0, 1, 7, 1000, 4096, 4097, 8191, 131072, 131075, 400001};
    char *shared = comm_host_alloc(r->world, 400001 * 8 + 8);
    char *own = malloc(400001 * 8 + 8);
    for (int p = IN_AREA; p <= MIXED && !r->why[0]; p++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts && !r->why[0]; i++) {
            bool in_area = p == IN_AREA || (p == MIXED && r->rank != 1);
            /* Off a cache line as well. */
            char *buf = (in_area ? shared : own) + (i & 1) * 8;
            reduce_once(r, buf, counts[i], DTYPE_F32, i & 2 ? COMM_MAX : COMM_SUM);
            if (!r->why[0]) {
                reduce_once(r, buf, counts[i], DTYPE_F64, i & 4 ? COMM_MAX : COMM_SUM);
            }
            if (!r->why[0]) {
                reduce_once(r, buf, counts[i], DTYPE_BF16, i & 2 ? COMM_MAX : COMM_SUM);
            }
        }
    }
    free(own);
}

/* Every member gets the bits of ((m0 + m1) + m2) + ..., whatever the size, the place and the way:
 * so a run doesn't depend on where its buffers lie. */
static void all_reduce_folds_in_rank_order_on_every_way(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 5, 16};
    for (size_t i = 0; i < (size_t)effort(5, 5, 4); i++) {
        gang_run_threads(sizes[i], AREA_BYTES, LONG_MS, reduce_everything, NULL);
    }
}

static void all_reduce_works_between_processes(void **state)
{
    (void)state;
    /* Sanitizers see in one what they see in all: a race between processes they don't. */
    static const int32_t sizes[] = {3, 2, 5, 8, 16};
    for (size_t i = 0; i < (size_t)effort(5, 5, 1); i++) {
        gang_run_processes(sizes[i], AREA_BYTES, LONG_MS, reduce_everything, NULL);
    }
}

static void max_with_nan(struct gang_rank *r)
{
    struct error err = {0};
    double buf[3] = {r->rank, r->rank == 1 ? NAN : 5, r->rank == 0 ? NAN : 5};
    GANG_CHECK(r, r->all->ops->all_reduce(r->all, NULL, buf, 3, DTYPE_F64, COMM_MAX, &err) == 0);
    GANG_CHECK(r, buf[0] == r->size - 1 && isnan(buf[1]) && isnan(buf[2]));
}

/* One rank's NaN must reach all: the others would train on. */
static void a_nan_survives_a_maximum(void **state)
{
    (void)state;
    gang_run_threads(3, AREA_BYTES, LONG_MS, max_with_nan, NULL);
}

/* ---- the others -------------------------------------------------------------------------------
 */

static void scatter_once(struct gang_rank *r, void *src, void *dst, int64_t n, enum dtype t)
{
    struct error err = {0};
    int32_t members[COMM_HOST_MAX_RANKS];
    for (int32_t i = 0; i < r->size; i++) {
        members[i] = i;
    }
    fill(src, r->rank, n * r->size, t);
    if (!dst) {
        dst = (char *)src + (size_t)(r->rank * n) * dtype_size(t);
    }
    GANG_CHECK(r, r->all->ops->reduce_scatter(r->all, NULL, dst, src, n, t, &err) == 0);
    for (int64_t i = 0; i<n; i += n> 5000 ? 97 : 1) {
        GANG_CHECK(r, is_fold(dst, i, r->rank * n + i, members, r->size, t, COMM_SUM));
    }
}

static void gather_once(struct gang_rank *r, void *src, void *dst, int64_t n, enum dtype t)
{
    struct error err = {0};
    if (!src) {
        src = (char *)dst + (size_t)(r->rank * n) * dtype_size(t);
    }
    fill(src, r->rank, n, t);
    GANG_CHECK(r, r->all->ops->all_gather(r->all, NULL, dst, src, n, t, &err) == 0);
    for (int32_t m = 0; m < r->size; m++) {
        for (int64_t i = 0; i<n; i += n> 5000 ? 97 : 1) {
            GANG_CHECK(r, is_fold(dst, m * n + i, i, &m, 1, t, COMM_SUM));
        }
    }
}

static void broadcast_once(struct gang_rank *r, void *buf, int64_t n, enum dtype t, int32_t root)
{
    struct error err = {0};
    fill(buf, r->rank, n, t);
    GANG_CHECK(r, r->all->ops->broadcast(r->all, NULL, buf, n, t, root, &err) == 0);
    for (int64_t i = 0; i<n; i += n> 5000 ? 97 : 1) {
        GANG_CHECK(r, is_fold(buf, i, i, &root, 1, t, COMM_SUM));
    }
}

static void move_everything(struct gang_rank *r)
{
    static const int64_t counts[] = {0, 1, 333, 2048, 5000, 30001, 70000};
    char *shared = comm_host_alloc(r->world, (size_t)(70000 * r->size) * 8);
    char *own = malloc((size_t)(70000 * r->size) * 8);
    char *other = malloc((size_t)(70000 * r->size) * 8);
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};
    for (size_t i = 0; i < 6 * sizeof counts / sizeof *counts && !r->why[0]; i++) {
        int64_t n = counts[i / 6];
        enum dtype t = types[i % 3];
        char *at = i & 1 ? shared : own;
        scatter_once(r, at, NULL, n, t);
        scatter_once(r, at, other, n, t);
        gather_once(r, NULL, at, n, t);
        gather_once(r, other, at, n, t);
        gather_once(r, at, other, n, t);
        broadcast_once(r, at, n, t, 0);
        broadcast_once(r, at, n, t, r->size - 1);
        broadcast_once(r, r->rank == 0 ? shared : own, n, t, 0);
    }
    free(own);
    free(other);
}

static void scatter_gather_broadcast_work_in_place_and_apart(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 5, 16};
    for (size_t i = 0; i < (size_t)effort(5, 5, 4); i++) {
        size_t area = (size_t)(70000 * sizes[i]) * 8 + 64;
        gang_run_threads(sizes[i], area, LONG_MS, move_everything, NULL);
    }
}

static void scatter_gather_broadcast_work_between_processes(void **state)
{
    (void)state;
    gang_run_processes(5, 70000 * 5 * 8 + 64, LONG_MS, move_everything, NULL);
}

static void plain_writes_around_barriers(struct gang_rank *r)
{
    struct error err = {0};
    int64_t *cells = r->arg;
    for (int64_t round = 1; round <= 50; round++) {
        cells[r->rank] = round;
        GANG_CHECK(r, r->all->ops->barrier(r->all, NULL, &err) == 0);
        for (int32_t i = 0; i < r->size; i++) {
            GANG_CHECK(r, cells[i] == round);
        }
        GANG_CHECK(r, r->all->ops->barrier(r->all, NULL, &err) == 0);
    }
}

/* What was written before a barrier is seen behind it (a race detector checks the ordering). */
static void a_barrier_orders_memory(void **state)
{
    (void)state;
    int64_t cells[8] = {0};
    gang_run_threads(8, 0, LONG_MS, plain_writes_around_barriers, cells);
}

/* ---- groups -----------------------------------------------------------------------------------
 */

static int sum_over(struct comm *c, int64_t n, double mine, double want, struct error *err)
{
    double *buf = malloc((size_t)n * sizeof *buf);
    for (int64_t i = 0; i < n; i++) {
        buf[i] = mine;
    }
    int rc = c->ops->all_reduce(c, NULL, buf, n, DTYPE_F64, COMM_SUM, err);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        rc = buf[i] == want ? 0 : -1;
    }
    free(buf);
    return rc;
}

static void use_groups(struct gang_rank *r)
{
    struct error err = {0};
    int32_t me = r->rank, half = me / 4 * 4, alone[] = {me};
    int32_t quad[] = {half, half + 1, half + 2, half + 3}, pair[] = {me % 4, me % 4 + 4};
    struct comm *quads[2], *pairs, *self;
    GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, quad, 4, &quads[0], &err) == 0);
    GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, alone, 1, &self, &err) == 0);
    GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, pair, 2, &pairs, &err) == 0);
    GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, quad, 4, &quads[1], &err) == 0);
    GANG_CHECK(r, pairs->rank == me / 4 && quads[0]->rank == me % 4 && self->size == 1);
    for (int round = 0; round < 20; round++) {
        /* The halves are out of step with each other on purpose. */
        for (int i = 0; i < (half ? 1 : 3); i++) {
            GANG_CHECK(r, sum_over(quads[0], 5000, me, 4 * half + 6, &err) == 0);
        }
        GANG_CHECK(r, sum_over(pairs, 9, me, me % 4 * 2 + 4, &err) == 0);
        GANG_CHECK(r, sum_over(quads[1], 70001, 1, 4, &err) == 0);
        GANG_CHECK(r, sum_over(self, 3, me, me, &err) == 0);
        GANG_CHECK(r, sum_over(r->all, 20, me, 28, &err) == 0);
    }
    for (int i = 0; i < 2; i++) {
        quads[i]->ops->free(quads[i]);
    }
    pairs->ops->free(pairs);
    self->ops->free(self);
}

/* Groups of a mesh are made without talking, in each rank's own order, also twice of the same
 * members, and don't disturb each other. */
static void groups_are_independent(void **state)
{
    (void)state;
    gang_run_threads(8, 0, LONG_MS, use_groups, NULL);
    gang_run_processes(8, 0, LONG_MS, use_groups, NULL);
}

static void make_many(struct gang_rank *r)
{
    struct error err = {0};
    struct comm *comms[64];
    int32_t both[] = {0, 1};
    for (int i = 0; i < 63; i++) { /* r->all is one */
        GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, both, 2, &comms[i], &err) == 0);
        GANG_CHECK(r, sum_over(comms[i], 3000, 1, 2, &err) == 0);
    }
    GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, both, 2, &comms[63], &err) == -1);
    GANG_CHECK(r, err.code == ERR_RESOURCE_EXHAUSTED && strstr(err.text, "64 communicators"));
    for (int i = 0; i < 63; i++) {
        GANG_CHECK(r, sum_over(comms[i], 3, 1, 2, &err) == 0);
        comms[i]->ops->free(comms[i]);
    }
}

static void a_rank_can_be_in_64_communicators(void **state)
{
    (void)state;
    gang_run_threads(2, 0, LONG_MS, make_many, NULL);
}

static void use_memory(struct gang_rank *r)
{
    char *a = comm_host_alloc(r->world, 100), *b = comm_host_alloc(r->world, 4096 - 128);
    GANG_CHECK(r, a && b && a[99] == 0 && b == a + 128 && ((uintptr_t)a & 63) == 0);
    GANG_CHECK(r, comm_host_alloc(r->world, 1) == NULL);
}

static void the_area_ends_where_it_was_said(void **state)
{
    (void)state;
    gang_run_threads(2, 4000, LONG_MS, use_memory, NULL);
}

/* ---- failures ---------------------------------------------------------------------------------
 */

struct shared_count {
    _Atomic int num_rounds[16];
};

static void be_absent(struct gang_rank *r)
{
    struct error err = {0};
    struct shared_count *count = r->arg;
    int32_t pair[] = {r->rank / 2 * 2, r->rank / 2 * 2 + 1};
    struct comm *c;
    GANG_CHECK(r, comm_host_comm_new(r->world, &r->dev, pair, 2, &c, &err) == 0);
    float *buf = calloc(1048576, sizeof *buf);
    bool good = true;
    if (r->rank < 2) {
        /* At work in another communicator: they hear of it as well. */
        while (c->ops->all_reduce(c, NULL, buf, 9000, DTYPE_F32, COMM_SUM, &err) == 0) {
            atomic_fetch_add(&count->num_rounds[r->rank], 1);
        }
        good = strstr(err.text, "rank 3 did not come to all-reduce of 1,048,576 fp32");
    } else if (r->rank == 2) {
        /* Else one of the two that is late may be the first that is missing. */
        for (int i = 0; i < 2; i++) {
            while (atomic_load(&count->num_rounds[i]) == 0) {
                clock_sleep_ms(1);
            }
        }
        int rc = c->ops->all_reduce(c, NULL, buf, 1048576, DTYPE_F32, COMM_SUM, &err);
        good = rc == -1 && err.code == ERR_DEADLINE_EXCEEDED &&
               strstr(err.text, "rank 3 did not come to all-reduce of 1,048,576 fp32");
    }
    snprintf(r->why, sizeof r->why, "%.100s", good ? "" : err.text);
    free(buf);
    c->ops->free(c);
}

/* The error of a hang says who hangs and in what; everyone hears it. */
static void the_deadline_names_the_missing_rank(void **state)
{
    (void)state;
    struct shared_count count = {0};
    gang_run_threads_until(4, (int64_t[]){LONG_MS, LONG_MS, 1500, LONG_MS}, be_absent, &count);
}

static void disagree(struct gang_rank *r)
{
    struct error err = {0};
    double buf[8] = {0};
    GANG_CHECK(r, r->all->ops->barrier(r->all, NULL, &err) == 0);
    int rc = r->rank == 1
                 ? r->all->ops->broadcast(r->all, NULL, buf, 8, DTYPE_F64, 0, &err)
                 : r->all->ops->all_reduce(r->all, NULL, buf, 7, DTYPE_F64, COMM_SUM, &err);
    GANG_CHECK(r, rc == -1 && err.code == ERR_FAILED_PRECONDITION);
    GANG_CHECK(r, strstr(err.text, "rank 1 called broadcast of 8 fp64 from member 0 where rank 0 "
                                   "called all-reduce of 7 fp64"));
    GANG_CHECK(r, r->all->ops->barrier(r->all, NULL, &err) == -1);
}

static void members_that_call_different_things_hear_which(void **state)
{
    (void)state;
    gang_run_threads(3, 0, LONG_MS, disagree, NULL);
}

static void sum_and_leave(struct gang_rank *r)
{
    struct error err = {0};
    double word = 1.0;
    int rc = r->all->ops->all_reduce(r->all, NULL, &word, 1, DTYPE_F64, COMM_SUM, &err);
    comm_host_abort(r->world, "I am done with it");
    GANG_CHECK(r, rc == 0 && word == 3.0);
    GANG_CHECK(r, r->all->ops->barrier(r->all, NULL, &err) == -1);
}

/* Nobody hears of an abort in place of a sum that everyone came to: what all ranks decide by it,
 * they decide alike. */
static void an_abort_takes_back_nothing_that_all_came_to(void **state)
{
    (void)state;
    for (int i = 0; i < effort(100, 100, 10); i++)
        gang_run_threads(3, 0, LONG_MS, sum_and_leave, NULL);
}

static void *segment_view(int fd, int32_t size, size_t area)
{
    void *p =
        mmap(NULL, comm_host_segment_bytes(size, area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void reduce_until_it_fails(struct gang_rank *r)
{
    struct error err = {0};
    struct shared_count *count = r->arg;
    size_t n = 300000;
    float *buf = r->rank % 2 ? calloc(n, 4) : comm_host_alloc(r->world, n * 4);
    while (r->all->ops->all_reduce(r->all, NULL, buf, (int64_t)n, DTYPE_F32, COMM_SUM, &err) == 0) {
        atomic_fetch_add(&count->num_rounds[r->rank], 1);
    }
    GANG_CHECK(r, strstr(err.text, "rank 2"));
}

/* Starts five, waits until they are at work, hits rank 2 with the signal. */
static struct shared_count *start_and_hit(int fd, int64_t deadline_ms, int sig, pid_t pids[5])
{
    struct shared_count *count =
        mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(count != MAP_FAILED);
    gang_start_until(5, fd, deadline_ms, reduce_until_it_fails, count, pids);
    WAIT_UNTIL(atomic_load(&count->num_rounds[2]) >= 3, "three rounds of rank 2");
    assert_int_equal(kill(pids[2], sig), 0);
    return count;
}

static void expect_others_left_well(const pid_t pids[5])
{
    for (int i = 0; i < 5; i++) {
        if (i != 2) {
            assert_int_equal(gang_wait(pids[i], i), 0);
        }
    }
}

/* A killed rank: whoever reaps it aborts the segment, and all the others leave with its name, long
 * before their deadline (an hour: this test would go on). */
static void a_killed_rank_frees_the_others(void **state)
{
    (void)state;
    int fd;
    pid_t pids[5];
    assert_int_equal(comm_host_segment_new(5, AREA_BYTES, &fd, NULL), 0);
    void *segment = segment_view(fd, 5, AREA_BYTES);
    struct shared_count *count = start_and_hit(fd, 3600 * 1000, SIGKILL, pids);
    int status = gang_wait(pids[2], 2);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    comm_host_segment_abort(segment, 2, "rank 2 was killed by signal 9 (SIGKILL)");
    expect_others_left_well(pids);
    munmap(segment, comm_host_segment_bytes(5, AREA_BYTES));
    munmap(count, sizeof *count);
    close(fd);
}

/* A stopped rank never dies: only the deadline sees it. */
static void a_stopped_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    int fd;
    pid_t pids[5];
    assert_int_equal(comm_host_segment_new(5, AREA_BYTES, &fd, NULL), 0);
    struct shared_count *count = start_and_hit(fd, 3000, SIGSTOP, pids);
    expect_others_left_well(pids);
    kill(pids[2], SIGKILL);
    gang_wait(pids[2], 2);
    munmap(count, sizeof *count);
    close(fd);
}

static void refuse_strange_descriptors(struct gang_rank *r)
{
    struct error err = {0};
    struct comm_host_world *w;
    GANG_CHECK(r, comm_host_open(&w, r->fd, 0, 3, 1000, &err) == -1);
    GANG_CHECK(r, strstr(err.text, "for 2 ranks, not 3"));
    int fd = memfd_create("other", MFD_CLOEXEC);
    GANG_CHECK(r, ftruncate(fd, 1 << 20) == 0);
    int rc = comm_host_open(&w, fd, 0, 2, 1000, &err);
    close(fd);
    GANG_CHECK(r, rc == -1 && strstr(err.text, "isn't a gang's shared segment"));
    GANG_CHECK(r, comm_host_open(&w, -1, 0, 2, 1000, &err) == -1);
}

static void a_wrong_descriptor_is_refused_in_words(void **state)
{
    (void)state;
    gang_run_threads(2, 0, LONG_MS, refuse_strange_descriptors, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_folds_in_rank_order_on_every_way),
        cmocka_unit_test(all_reduce_works_between_processes),
        cmocka_unit_test(a_nan_survives_a_maximum),
        cmocka_unit_test(scatter_gather_broadcast_work_in_place_and_apart),
        cmocka_unit_test(scatter_gather_broadcast_work_between_processes),
        cmocka_unit_test(a_barrier_orders_memory),
        cmocka_unit_test(groups_are_independent),
        cmocka_unit_test(a_rank_can_be_in_64_communicators),
        cmocka_unit_test(the_area_ends_where_it_was_said),
        cmocka_unit_test(the_deadline_names_the_missing_rank),
        cmocka_unit_test(members_that_call_different_things_hear_which),
        cmocka_unit_test(an_abort_takes_back_nothing_that_all_came_to),
        cmocka_unit_test(a_killed_rank_frees_the_others),
        cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
        cmocka_unit_test(a_wrong_descriptor_is_refused_in_words),
    };
    values_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
