/* NCCL's communicators on the simulator, ranks as processes over a host segment, as in a job: what
 * the calls give is what comm_host gives, and a rank that stands, dies or never comes is named on
 * all others, whose streams are free again. */
#include "tests/cusim/side.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

#include "base/clock.h"
#include "kernels/cuda/device.h"
#include "runtime/comm/comm_host.h"
#include "runtime/comm/comm_nccl.h"

#define MAX_RANKS 4
#define LONG_MS 60000
#define SHORT_MS 800

/* ---- ranks ------------------------------------------------------------------------------------
 */

struct shared {
    _Atomic int num_rounds[MAX_RANKS];
    _Atomic int num_left;
};

struct rank {
    int32_t rank, num;
    int schedule, fd;
    int64_t deadline_ms;
    bool has_board;
    unsigned char id[COMM_ID_MAX];
    struct shared *shared;
    struct comm_host_world *host;
    struct device *dev;
    struct stream *s;
    struct comm_world *world;
    struct comm *all;
    struct error err;
};

static const char *const hosts[MAX_RANKS] = {"n1", "n1", "n2", "n2"};

/* In a rank nothing of cmocka may run: a failure is an exit. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d: not so: %s (%s)\n", __FILE__, __LINE__, (int)r->rank, \
                    #condition, r->err.text);                                                      \
            _exit(9);                                                                              \
        }                                                                                          \
    } while (0)
#define CUDA(call) NEED((call) == cudaSuccess)
#define SYNC() r->dev->ops->stream_sync(r->dev, r->s, &r->err)

typedef void (*rank_fn)(struct rank *r);

static int open_world(struct rank *r)
{
    struct comm_provider_options o = {
        .id = r->id,
        .rank = r->rank,
        .num_ranks = r->num,
        .deadline_ms = r->deadline_ms,
        .hosts = hosts,
        .board = r->has_board ? comm_host_board(r->host) : NULL,
        .dev = r->dev,
    };
    return comm_nccl_provider.open(&o, &r->world, &r->err);
}

static int new_comm(struct rank *r, int32_t first, int32_t step, int32_t num, const char *name,
                    struct comm **out)
{
    int32_t members[MAX_RANKS];
    for (int32_t i = 0; i < num; i++) {
        members[i] = first + i * step;
    }
    return r->world->ops->comm_new(r->world, r->dev, members, num, name, false, out, &r->err);
}

static void rank_prepare(struct rank *r)
{
    alarm(100);
    schedule_take(r->schedule % NUM_SCHEDULES);
    NEED(comm_host_open(&r->host, r->fd, r->rank, r->num, r->deadline_ms, &r->err) == 0);
    comm_host_set_hosts(r->host, hosts);
    NEED(cuda_device_open(0, &r->dev, &r->err) == 0);
    NEED(r->dev->ops->stream_new(r->dev, STREAM_QUEUE, &r->s, &r->err) == 0);
}

static void rank_open(struct rank *r)
{
    rank_prepare(r);
    NEED(open_world(r) == 0);
    NEED(new_comm(r, 0, 1, r->num, "all ranks", &r->all) == 0);
}

/* Whatever happened before, this comes to an end. */
static void rank_close(struct rank *r)
{
    if (r->all) {
        r->all->ops->free(r->all);
    }
    r->dev->ops->stream_free(r->dev, r->s);
    if (r->world) {
        r->world->ops->close(r->world);
    }
    r->dev->ops->close(r->dev);
    comm_host_close(r->host);
}

static void ranks_start(struct rank *r, rank_fn fn, pid_t *pids)
{
    assert_int_equal(comm_nccl_provider.make_id(r->id, NULL), 0);
    assert_int_equal(comm_host_segment_new(r->num, 1 << 20, &r->fd, NULL), 0);
    r->shared =
        mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->shared != MAP_FAILED);
    fflush(NULL);
    for (int32_t i = 0; i < r->num; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            r->rank = i;
            fn(r);
            _exit(0);
        }
    }
}

/* The ranks of `left_out` (bits) are ended here; all others must have found all well. */
static void ranks_end(struct rank *r, const pid_t *pids, unsigned left_out)
{
    int num_wrong = 0, status;
    for (int32_t i = 0; i < r->num; i++) {
        if (!(left_out >> i & 1)) {
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            num_wrong += status != 0;
        }
    }
    for (int32_t i = 0; i < r->num; i++) {
        if (left_out >> i & 1) {
            kill(pids[i], SIGKILL);
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        }
    }
    munmap(r->shared, sizeof *r->shared);
    close(r->fd);
    assert_int_equal(num_wrong, 0);
}

static void run_well(int32_t num, int schedule, rank_fn fn)
{
    struct rank r = {.num = num, .schedule = schedule, .deadline_ms = LONG_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, fn, pids);
    ranks_end(&r, pids, 0);
}

/* ---- what they compute ------------------------------------------------------------------------
 */

static int call_now(struct device *dev, struct stream *s, device_call_fn fn, const void *args,
                    size_t bytes, struct error *err)
{
    (void)dev;
    (void)s;
    _Alignas(16) char copy[DEVICE_CALL_BYTES];
    memcpy(copy, args, bytes);
    return fn(copy, err);
}

static const struct device_ops now_ops = {.name = "now", .host_call = call_now};
static struct device now_device = {&now_ops};

/* The same numbers on a device and on the host. */
struct twin {
    void *dev, *host, *back;
    size_t bytes;
};

static struct twin twin_new(struct rank *r, size_t n, enum dtype t, int salt)
{
    struct twin x = {.bytes = n * dtype_size(t)};
    x.host = malloc(x.bytes + 8);
    x.back = malloc(x.bytes + 8);
    x.dev = r->dev->ops->alloc(r->dev, x.bytes + 8, MEM_DEVICE);
    NEED(x.host && x.back && x.dev);
    for (size_t i = 0; i < n; i++) {
        float v = (float)((int)(i * 7 + (size_t)(r->rank * 13 + salt)) % 23 - 9) / 8.0f;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        if (t == DTYPE_F32) {
            ((float *)x.host)[i] = v * 1.1f;
        } else if (t == DTYPE_F64) {
            ((double *)x.host)[i] = (double)v / 3.0;
        } else if (t == DTYPE_BF16) {
            ((uint16_t *)x.host)[i] = (uint16_t)(bits >> 16);
        } else {
            ((int32_t *)x.host)[i] = (int32_t)(v * 800);
        }
    }
    NEED(r->dev->ops->copy(r->dev, r->s, x.dev, x.host, x.bytes, COPY_TO_DEVICE, &r->err) == 0);
    NEED(SYNC() == 0);
    return x;
}

static void twin_compare(struct rank *r, struct twin *x)
{
    NEED(r->dev->ops->copy(r->dev, r->s, x->back, x->dev, x->bytes, COPY_TO_HOST, &r->err) == 0);
    NEED(SYNC() == 0);
    NEED(memcmp(x->back, x->host, x->bytes) == 0);
}

static void twin_free(struct rank *r, struct twin *x)
{
    twin_compare(r, x);
    r->dev->ops->free(r->dev, x->dev);
    free(x->host);
    free(x->back);
}

static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_I32};

static void reductions(struct rank *r, struct comm *c, struct comm *h, int64_t n, enum dtype t)
{
    size_t elem = dtype_size(t);
    for (int op = COMM_SUM; op <= COMM_MAX; op++) {
        struct twin x = twin_new(r, (size_t)n, t, op);
        NEED(c->ops->all_reduce(c, r->s, x.dev, n, t, (enum comm_op)op, &r->err) == 0);
        NEED(h->ops->all_reduce(h, NULL, x.host, n, t, (enum comm_op)op, &r->err) == 0);
        twin_free(r, &x);
    }
    struct twin all = twin_new(r, (size_t)(n * c->size), t, 3), part = twin_new(r, (size_t)n, t, 4);
    NEED(c->ops->reduce_scatter(c, r->s, part.dev, all.dev, n, t, &r->err) == 0);
    NEED(h->ops->reduce_scatter(h, NULL, part.host, all.host, n, t, &r->err) == 0);
    twin_compare(r, &all);
    twin_free(r, &part);
    size_t at = (size_t)(c->rank * n) * elem; /* in place */
    NEED(c->ops->reduce_scatter(c, r->s, (char *)all.dev + at, all.dev, n, t, &r->err) == 0);
    NEED(h->ops->reduce_scatter(h, NULL, (char *)all.host + at, all.host, n, t, &r->err) == 0);
    NEED(r->dev->ops->copy(r->dev, r->s, all.back, (char *)all.dev + at, (size_t)n * elem,
                           COPY_TO_HOST, &r->err) == 0);
    NEED(SYNC() == 0);
    NEED(memcmp(all.back, (char *)all.host + at, (size_t)n * elem) == 0);
    r->dev->ops->free(r->dev, all.dev);
    free(all.host);
    free(all.back);
}

static void movements(struct rank *r, struct comm *c, struct comm *h, int64_t n, enum dtype t)
{
    struct twin all = twin_new(r, (size_t)(n * c->size), t, 5), part = twin_new(r, (size_t)n, t, 6);
    NEED(c->ops->all_gather(c, r->s, all.dev, part.dev, n, t, &r->err) == 0);
    NEED(h->ops->all_gather(h, NULL, all.host, part.host, n, t, &r->err) == 0);
    twin_compare(r, &all);
    size_t at = (size_t)(c->rank * n) * dtype_size(t);
    NEED(c->ops->all_gather(c, r->s, all.dev, (char *)all.dev + at, n, t, &r->err) == 0);
    twin_free(r, &all);
    for (int32_t root = 0; root < c->size; root++) {
        struct twin x = twin_new(r, (size_t)n, t, 7);
        NEED(c->ops->broadcast(c, r->s, x.dev, n, t, root, &r->err) == 0);
        NEED(h->ops->broadcast(h, NULL, x.host, n, t, root, &r->err) == 0);
        twin_free(r, &x);
    }
    /* To the right, from the left, and to itself. */
    struct twin in = twin_new(r, (size_t)n, t, 8), own = twin_new(r, (size_t)n, t, 9);
    int32_t right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    for (int i = 0; i < 2; i++) {
        struct comm *one = i ? h : c;
        struct stream *s = i ? NULL : r->s;
        NEED(one->ops->group_begin(one, &r->err) == 0);
        NEED(one->ops->send(one, s, i ? part.host : part.dev, n, t, right, &r->err) == 0);
        NEED(one->ops->recv(one, s, i ? in.host : in.dev, n, t, left, &r->err) == 0);
        if (c->size > 1) {
            NEED(one->ops->recv(one, s, i ? own.host : own.dev, n, t, one->rank, &r->err) == 0);
            NEED(one->ops->send(one, s, i ? part.host : part.dev, n, t, one->rank, &r->err) == 0);
        }
        NEED(one->ops->group_end(one, s, &r->err) == 0);
    }
    twin_free(r, &part);
    twin_free(r, &in);
    twin_free(r, &own);
    NEED(c->ops->barrier(c, r->s, &r->err) == 0);
    NEED(h->ops->barrier(h, NULL, &r->err) == 0);
}

static void all_operations(struct rank *r)
{
    static const int64_t sizes[] = {0, 1, 7, 4099};
    int32_t members[MAX_RANKS] = {0, 1, 2, 3};
    struct comm *h;
    rank_open(r);
    NEED(comm_host_comm_new(r->host, &now_device, members, r->num, &h, &r->err) == 0);
    for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        enum dtype t = types[i % 4];
        if (t != DTYPE_I32) {
            reductions(r, r->all, h, sizes[i / 4], t);
        }
        movements(r, r->all, h, sizes[i / 4], t);
    }
    h->ops->free(h);
    rank_close(r);
}

static void every_operation_gives_what_the_host_gives(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        run_well(1 + i % 4, i, all_operations);
    }
}

/* As of a mesh 2 x 2: its rows, its columns, the rows again, and all. */
static void use_groups(struct rank *r)
{
    struct comm *groups[3];
    double want, back;
    rank_open(r);
    NEED(new_comm(r, r->rank / 2 * 2, 1, 2, "the rows", &groups[0]) == 0);
    NEED(new_comm(r, r->rank % 2, 2, 2, "the columns", &groups[1]) == 0);
    NEED(new_comm(r, r->rank / 2 * 2, 1, 2, "the rows", &groups[2]) == 0);
    for (int round = 0; round < 60; round++) { /* more than there are marks */
        struct comm *c = groups[round % 3];
        struct twin x = twin_new(r, 1, DTYPE_F64, round);
        double mine = r->rank + 1;
        NEED(c->size == 2 && c->rank == (round % 3 == 1 ? r->rank / 2 : r->rank % 2));
        NEED(r->dev->ops->copy(r->dev, r->s, x.dev, &mine, 8, COPY_TO_DEVICE, &r->err) == 0);
        for (int i = 0; i < 3; i++) {
            NEED(c->ops->all_reduce(c, r->s, x.dev, 1, DTYPE_F64, COMM_SUM, &r->err) == 0);
        }
        NEED(r->dev->ops->copy(r->dev, r->s, &back, x.dev, 8, COPY_TO_HOST, &r->err) == 0);
        NEED(SYNC() == 0);
        want = round % 3 == 1 ? 2 * (r->rank % 2) + 4 : 4 * (r->rank / 2) + 3;
        NEED(back == want * 4);
        r->dev->ops->free(r->dev, x.dev);
        free(x.host);
        free(x.back);
    }
    for (int i = 0; i < 3; i++) {
        groups[i]->ops->free(groups[i]);
    }
    rank_close(r);
}

static void groups_of_a_mesh_are_independent(void **state)
{
    (void)state;
    run_well(4, 0, use_groups);
    run_well(4, NUM_SCHEDULES - 1, use_groups);
}

static void misuse(struct rank *r)
{
    float *x;
    rank_open(r);
    struct comm *c = r->all;
    x = r->dev->ops->alloc(r->dev, 64, MEM_DEVICE);
    NEED(c->ops->group_end(c, r->s, &r->err) == -1 && strstr(r->err.text, "without one"));
    NEED(c->ops->group_begin(c, &r->err) == 0);
    NEED(c->ops->group_begin(c, &r->err) == -1 && strstr(r->err.text, "inside a group"));
    NEED(c->ops->barrier(c, r->s, &r->err) == -1 && strstr(r->err.text, "only sends"));
    NEED(c->ops->group_end(c, r->s, &r->err) == 0);
    NEED(c->ops->send(c, r->s, x, 1, DTYPE_F32, r->rank, &r->err) == -1);
    NEED(strstr(r->err.text, "sends to itself what it doesn't receive"));
    NEED(c->ops->barrier(c, r->s, &r->err) == 0 && SYNC() == 0);
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void a_group_is_of_messages_and_ends_once(void **state)
{
    (void)state;
    run_well(2, 1, misuse);
}

/* ---- who is missing ---------------------------------------------------------------------------
 */

/* Rounds of a sum until it fails, which the sync must say. */
static void reduce_until_it_fails(struct rank *r, const char *words)
{
    float *x = r->dev->ops->alloc(r->dev, 5000 * 4, MEM_DEVICE);
    NEED(x);
    int rc = 0;
    while (rc == 0) {
        comm_say(r->all, "bucket %d", 3);
        rc = r->all->ops->all_reduce(r->all, r->s, x, 5000, DTYPE_F32, COMM_SUM, &r->err);
        rc = rc == 0 ? SYNC() : rc;
        atomic_fetch_add(&r->shared->num_rounds[r->rank], 1);
    }
    NEED(strstr(r->err.text, words));
    /* And so does everything that comes. */
    NEED(r->all->ops->barrier(r->all, r->s, &r->err) == -1);
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void wait_for_rounds(const struct rank *r, int32_t rank, int num)
{
    int64_t until = clock_mono_ms() + 60000;
    while (atomic_load(&r->shared->num_rounds[rank]) < num) {
        assert_true(clock_mono_ms() < until);
        clock_sleep_ms(1);
    }
}

static void hear_of_the_stopped(struct rank *r)
{
    rank_open(r);
    reduce_until_it_fails(r, "all-reduce of bucket 3 (5,000 fp32) over all ranks: rank 2 on n2 did "
                             "not come to all-reduce of bucket 3 (5,000 fp32) over all ranks "
                             "within 0.8 s");
}

static void a_stopped_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rank r = {.num = 4, .schedule = i * 4, .deadline_ms = SHORT_MS, .has_board = true};
        pid_t pids[MAX_RANKS];
        ranks_start(&r, hear_of_the_stopped, pids);
        wait_for_rounds(&r, 2, 3);
        kill(pids[2], SIGSTOP);
        ranks_end(&r, pids, 1u << 2);
    }
}

static void hear_of_the_killed(struct rank *r)
{
    rank_open(r);
    reduce_until_it_fails(r,
                          "all-reduce of bucket 3 (5,000 fp32) over all ranks: rank 1 was killed "
                          "by signal 9");
}

/* tandem-node says it; long before the deadline, which is an hour. */
static void a_killed_rank_frees_the_others(void **state)
{
    (void)state;
    struct rank r = {.num = 3, .deadline_ms = 3600 * 1000, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, hear_of_the_killed, pids);
    size_t bytes = comm_host_segment_bytes(r.num, 1 << 20);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
    assert_true(segment != MAP_FAILED);
    wait_for_rounds(&r, 1, 3);
    kill(pids[1], SIGKILL);
    comm_host_segment_abort(segment, 1, "rank 1 was killed by signal 9");
    munmap(segment, bytes);
    ranks_end(&r, pids, 1u << 1);
}

static void hear_nccl(struct rank *r)
{
    rank_open(r);
    /* Its own end can't be waited for by who asks kill(2): the parent reaps it. */
    if (r->rank == 1) {
        reduce_until_it_fails(r, "no such words");
    }
    reduce_until_it_fails(r, "NCCL: remote process exited or there was a network error; another "
                             "rank's process is gone");
}

static void nccl_says_that_a_rank_is_gone_where_nobody_else_does(void **state)
{
    (void)state;
    struct rank r = {.num = 3, .deadline_ms = LONG_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    int status;
    ranks_start(&r, hear_nccl, pids);
    wait_for_rounds(&r, 1, 3);
    kill(pids[1], SIGKILL);
    assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    munmap(r.shared, sizeof *r.shared);
    close(r.fd);
}

/* Rank 1 doesn't come: to the world, to a group, to a call. */
static void miss_the_world(struct rank *r)
{
    rank_prepare(r);
    if (r->rank == 1) {
        pause();
    }
    NEED(open_world(r) == -1 && r->err.code == ERR_DEADLINE_EXCEEDED);
    NEED(strstr(r->err.text, "rank 1 on n1 did not come to the making of NCCL's communicator of "
                             "all ranks within 0.8 s"));
    rank_close(r);
}

static void miss_a_group(struct rank *r)
{
    rank_prepare(r);
    NEED(open_world(r) == 0);
    if (r->rank == 1) {
        pause();
    }
    NEED(new_comm(r, 0, 1, r->num, "the shard group (data 0-2)", &r->all) == -1);
    NEED(r->err.code == ERR_DEADLINE_EXCEEDED);
    NEED(strstr(r->err.text, "rank 1 on n1 did not come to the making of the shard group (data "
                             "0-2) within 0.8 s"));
    NEED(new_comm(r, 0, 1, r->num, "another", &r->all) == -1);
    rank_close(r);
}

static void miss_a_call(struct rank *r)
{
    rank_open(r);
    if (r->rank == 1) {
        pause();
    }
    reduce_until_it_fails(r, "rank 1 on n1 did not come to all-reduce of bucket 3");
}

static void miss_a_message(struct rank *r)
{
    struct comm *c;
    rank_open(r);
    c = r->all;
    float *x = r->dev->ops->alloc(r->dev, 40, MEM_DEVICE);
    if (r->rank == 1) {
        pause();
    }
    /* 0 from 1; 2 from 0, who waits itself. */
    NEED(c->ops->recv(c, r->s, x, 10, DTYPE_F32, r->rank == 0 ? 1 : 0, &r->err) == 0);
    NEED(SYNC() == -1 && r->err.code == ERR_DEADLINE_EXCEEDED);
    NEED(strstr(r->err.text, "rank 1 on n1 did not come to receive of 10 fp32 from member 1"));
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    static const rank_fn cases[] = {miss_the_world, miss_a_group, miss_a_call, miss_a_message};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank r = {.num = 3, .deadline_ms = SHORT_MS, .has_board = true};
        pid_t pids[MAX_RANKS];
        ranks_start(&r, cases[i], pids);
        ranks_end(&r, pids, 1u << 1);
    }
}

/* A device that is at something else: its host was here long ago. */
static void be_late_on_the_device(struct rank *r)
{
    struct stream *late;
    struct event *never;
    rank_open(r);
    float *x = r->dev->ops->alloc(r->dev, 40, MEM_DEVICE);
    struct comm *c = r->all, *second;
    NEED(new_comm(r, 0, 1, r->num, "the second group", &second) == 0);
    NEED(r->dev->ops->stream_new(r->dev, STREAM_QUEUE, &late, &r->err) == 0);
    NEED(r->dev->ops->event_new(r->dev, &never, &r->err) == 0);
    if (r->rank == 1) {
        /* Behind a call that the others make last: in another order than theirs. */
        NEED(second->ops->barrier(second, late, &r->err) == 0);
        NEED(r->dev->ops->event_record(r->dev, never, late, &r->err) == 0);
        NEED(r->dev->ops->stream_wait(r->dev, r->s, never, &r->err) == 0);
    }
    NEED(c->ops->all_reduce(c, r->s, x, 10, DTYPE_F32, COMM_SUM, &r->err) == 0);
    NEED(SYNC() == -1);
    NEED(strstr(r->err.text, "did not come to "));
    second->ops->free(second);
    r->dev->ops->event_free(r->dev, never);
    r->dev->ops->stream_free(r->dev, late);
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void calls_in_another_order_end_at_the_deadline(void **state)
{
    (void)state;
    struct rank r = {.num = 2, .deadline_ms = SHORT_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, be_late_on_the_device, pids);
    ranks_end(&r, pids, 0);
}

/* ---- what else goes wrong ---------------------------------------------------------------------
 */

static void break_one(struct rank *r)
{
    rank_open(r);
    NEED(r->all->ops->barrier(r->all, r->s, &r->err) == 0 && SYNC() == 0);
    if (r->rank == 1) {
        cusim_nccl_break(ncclSystemError);
    }
    reduce_until_it_fails(r, "rank 1: all-reduce of bucket 3 (5,000 fp32) over all ranks: NCCL: "
                             "unhandled system error (broken by cusim_nccl_break); NCCL_DEBUG");
}

static void an_error_of_nccl_reaches_all_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        run_well(2 + i % 2, i * 4, break_one);
    }
}

static void leave_or_hear(struct rank *r)
{
    rank_open(r);
    if (r->rank == 0) {
        r->world->ops->abort(r->world, "rank 0: the disk is full");
        NEED(r->all->ops->barrier(r->all, r->s, &r->err) == -1 || SYNC() == -1);
        NEED(strstr(r->err.text, "rank 0: the disk is full"));
        rank_close(r);
    } else {
        reduce_until_it_fails(r, "rank 0: the disk is full");
    }
}

/* Also where there is no board: then only the own process hears it. */
static void who_aborts_frees_all(void **state)
{
    (void)state;
    run_well(3, 0, leave_or_hear);
    run_well(3, NUM_SCHEDULES - 1, leave_or_hear);
}

static void do_without_a_board(struct rank *r)
{
    rank_open(r);
    if (r->rank == 1) {
        pause();
    }
    reduce_until_it_fails(r, "all-reduce of bucket 3, 5000 elements over all ranks: a rank did not "
                             "come to all-reduce");
}

static void abort_without_a_board(struct rank *r)
{
    float *x;
    rank_open(r);
    x = r->dev->ops->alloc(r->dev, 40, MEM_DEVICE);
    if (r->rank == 0) {
        NEED(r->all->ops->all_reduce(r->all, r->s, x, 10, DTYPE_F32, COMM_SUM, &r->err) == 0);
        r->world->ops->abort(r->world, "rank 0: enough");
        NEED(SYNC() == -1 && strstr(r->err.text, "rank 0: enough"));
        atomic_store(&r->shared->num_left, 1);
    }
    while (atomic_load(&r->shared->num_left) == 0) {
        clock_sleep_ms(1);
    }
    r->dev->ops->free(r->dev, x);
    if (r->rank == 0) {
        rank_close(r);
    }
}

static void without_a_board_nobody_hangs_either(void **state)
{
    (void)state;
    struct rank r = {.num = 2, .deadline_ms = SHORT_MS};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, do_without_a_board, pids);
    ranks_end(&r, pids, 1u << 1);
    r.deadline_ms = LONG_MS;
    ranks_start(&r, abort_without_a_board, pids);
    ranks_end(&r, pids, 0);
}

/* Calls that don't come back, as those that have to connect to a peer first, who isn't there. */
static void be_held(struct rank *r)
{
    rank_open(r);
    NEED(r->all->ops->barrier(r->all, r->s, &r->err) == 0 && SYNC() == 0);
    if (r->rank == 2) {
        pause();
    }
    cusim_nccl_hold();
    reduce_until_it_fails(r,
                          "rank 2 on n2 did not come to all-reduce of bucket 3 (5,000 fp32) over "
                          "all ranks within 0.8 s");
}

static void who_is_held_inside_a_call_gets_out(void **state)
{
    (void)state;
    struct rank r = {.num = 3, .deadline_ms = SHORT_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, be_held, pids);
    ranks_end(&r, pids, 1u << 2);
}

static void be_told(struct rank *r)
{
    rank_open(r);
    reduce_until_it_fails(r, "rank 2: stood still for 20 s");
}

/* As tandem-node does, long before a deadline. */
static void who_looks_on_sees_which_rank_is_missing(void **state)
{
    (void)state;
    struct rank r = {.num = 4, .deadline_ms = LONG_MS, .has_board = true};
    struct comm_host_missing missing = {.rank = -1};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, be_told, pids);
    size_t bytes = comm_host_segment_bytes(r.num, 1 << 20);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
    assert_true(segment != MAP_FAILED);
    wait_for_rounds(&r, 2, 3);
    kill(pids[2], SIGSTOP);
    int64_t until = clock_mono_ms() + 60000, same_since = 0;
    while (!same_since || clock_mono_ms() < same_since + 1000) {
        bool found = comm_host_segment_missing(segment, &missing, 1) == 1 && missing.rank == 2 &&
                     comm_host_segment_waits_for(segment, 2, &missing);
        same_since = !found ? 0 : same_since ? same_since : clock_mono_ms();
        assert_true(clock_mono_ms() < until);
        clock_sleep_ms(10);
    }
    assert_string_equal(missing.call, "all-reduce of bucket 3 (5,000 fp32) over all ranks");
    assert_true(missing.call_number > 3);
    comm_host_segment_abort(segment, 2, "rank 2: stood still for 20 s");
    munmap(segment, bytes);
    ranks_end(&r, pids, 1u << 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_gives_what_the_host_gives),
        cmocka_unit_test(groups_of_a_mesh_are_independent),
        cmocka_unit_test(a_group_is_of_messages_and_ends_once),
        cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
        cmocka_unit_test(a_killed_rank_frees_the_others),
        cmocka_unit_test(nccl_says_that_a_rank_is_gone_where_nobody_else_does),
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(calls_in_another_order_end_at_the_deadline),
        cmocka_unit_test(an_error_of_nccl_reaches_all_ranks),
        cmocka_unit_test(who_aborts_frees_all),
        cmocka_unit_test(without_a_board_nobody_hangs_either),
        cmocka_unit_test(who_is_held_inside_a_call_gets_out),
        cmocka_unit_test(who_looks_on_sees_which_rank_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
