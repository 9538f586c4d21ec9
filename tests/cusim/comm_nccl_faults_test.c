/* NCCL's communicators on the simulator where something is wrong: a rank that stands, dies or never
 * comes is named on all others, whose streams are free again. */
#include "tests/cusim/nccl_ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <nccl.h>

#include "base/clock.h"

/* ---- who is missing ---------------------------------------------------------------------------
 */

/* Numbers of a communicator's calls: of its making, and of the first round that a rank doesn't come
 * to which stops behind ROUNDS_OF_ONE of them. */
#define CALL_JOIN_NUMBER 1
#define CALL_OF_NOBODY (CALL_JOIN_NUMBER + ROUNDS_OF_ONE + 1)

/* Until the test ends it. */
static void stand(struct rank *r)
{
    rank_note_round(r);
    for (;;) {
        pause();
    }
}

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
        int num = atomic_fetch_add(&r->shared->num_rounds[r->rank], 1) + 1;
        if (num == ROUNDS_OF_ONE && r->stands && r->stands == r->rank) {
            raise(SIGSTOP);
        }
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
                             "within 60.0 s");
}

static void a_stopped_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rank r = {
            .num = 4, .schedule = i * 4, .deadline_ms = LONG_MS, .has_board = true, .stands = 2};
        pid_t pids[MAX_RANKS];
        ranks_start(&r, hear_of_the_stopped, pids);
        deadline_passes(&r, pids, 2, CALL_OF_NOBODY);
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
        stand(r);
    }
    NEED(rank_open_world(r) == -1 && r->err.code == ERR_DEADLINE_EXCEEDED);
    NEED(strstr(r->err.text, "rank 1 on n1 did not come to the making of NCCL's communicator of "
                             "all ranks within 60.0 s"));
    rank_close(r);
}

static void miss_a_group(struct rank *r)
{
    rank_prepare(r);
    NEED(rank_open_world(r) == 0);
    if (r->rank == 1) {
        stand(r);
    }
    NEED(rank_new_comm(r, 0, 1, r->num, "the shard group (data 0-2)", &r->all) == -1);
    NEED(r->err.code == ERR_DEADLINE_EXCEEDED);
    NEED(strstr(r->err.text, "rank 1 on n1 did not come to the making of the shard group (data "
                             "0-2) within 60.0 s"));
    NEED(rank_new_comm(r, 0, 1, r->num, "another", &r->all) == -1);
    rank_close(r);
}

static void miss_a_call(struct rank *r)
{
    rank_open(r);
    if (r->rank == 1) {
        stand(r);
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
        rank_wait_for_others(r);
        stand(r);
    }
    /* 0 from 1; 2 from 0, who waits itself. */
    NEED(c->ops->recv(c, r->s, x, 10, DTYPE_F32, r->rank == 0 ? 1 : 0, &r->err) == 0);
    rank_note_round(r);
    NEED(SYNC() == -1 && r->err.code == ERR_DEADLINE_EXCEEDED);
    NEED(strstr(r->err.text, "rank 1 on n1 did not come to receive of 10 fp32 from member 1"));
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    static const struct {
        rank_fn fn;
        uint32_t call_number; /* messages have none of their own */
    } cases[] = {
        {miss_the_world, CALL_JOIN_NUMBER},
        {miss_a_group, CALL_JOIN_NUMBER},
        {miss_a_call, CALL_JOIN_NUMBER + 1},
        {miss_a_message, CALL_JOIN_NUMBER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank r = {.num = 3, .deadline_ms = LONG_MS, .has_board = true};
        pid_t pids[MAX_RANKS];
        ranks_start(&r, cases[i].fn, pids);
        deadline_passes(&r, pids, 1, cases[i].call_number);
        ranks_end(&r, pids, 1u << 1);
    }
}

/* Whoever aborts first lets go of work that others wait for. */
static void sync_behind_an_abort(struct rank *r)
{
    rank_open(r);
    float *x = r->dev->ops->alloc(r->dev, 40, MEM_DEVICE);
    struct event *e;
    NEED(r->dev->ops->event_new(r->dev, &e, &r->err) == 0);
    NEED(r->all->ops->all_reduce(r->all, r->s, x, 10, DTYPE_F32, COMM_SUM, &r->err) == 0);
    NEED(r->dev->ops->event_record(r->dev, e, r->s, &r->err) == 0);
    if (r->rank == 1) {
        NEED(SYNC() == 0); /* so it has come for rank 0, too */
        rank_wait_for_others(r);
        r->world->ops->abort(r->world, "rank 1 has had enough");
        rank_note_round(r);
    } else {
        rank_note_round(r);
        rank_wait_for_others(r);
    }
    NEED(SYNC() == -1);
    NEED(strstr(r->err.text, "rank 1 has had enough"));
    NEED(r->dev->ops->event_sync(r->dev, e, &r->err) == -1);
    NEED(strstr(r->err.text, "rank 1 has had enough"));
    r->dev->ops->event_free(r->dev, e);
    r->dev->ops->free(r->dev, x);
    rank_close(r);
}

static void a_sync_behind_an_abort_fails_whatever_had_come(void **state)
{
    (void)state;
    struct rank r = {.num = 2, .deadline_ms = 3600 * 1000, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, sync_behind_an_abort, pids);
    ranks_end(&r, pids, 0);
}

/* A device that is at something else: its host was here long ago. */
static void be_late_on_the_device(struct rank *r)
{
    struct stream *late;
    struct event *never;
    rank_open(r);
    float *x = r->dev->ops->alloc(r->dev, 40, MEM_DEVICE);
    struct comm *c = r->all, *second;
    NEED(rank_new_comm(r, 0, 1, r->num, "the second group", &second) == 0);
    NEED(r->dev->ops->stream_new(r->dev, STREAM_QUEUE, &late, &r->err) == 0);
    NEED(r->dev->ops->event_new(r->dev, &never, &r->err) == 0);
    if (r->rank == 1) {
        /* Behind a call that the others make last: in another order than theirs. */
        NEED(second->ops->barrier(second, late, &r->err) == 0);
        NEED(r->dev->ops->event_record(r->dev, never, late, &r->err) == 0);
        NEED(r->dev->ops->stream_wait(r->dev, r->s, never, &r->err) == 0);
    }
    NEED(c->ops->all_reduce(c, r->s, x, 10, DTYPE_F32, COMM_SUM, &r->err) == 0);
    rank_note_round(r);
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
    struct rank r = {.num = 2, .deadline_ms = LONG_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, be_late_on_the_device, pids);
    deadlines_pass(&r, pids, 0);
    ranks_end(&r, pids, 0);
}

/* ---- what else goes wrong ---------------------------------------------------------------------
 */

/* Behind a sum like those that come: what the watchdog names is the one it is inside of or, between
 * two, the last one. */
static void break_one(struct rank *r)
{
    rank_open(r);
    float *x = r->dev->ops->alloc(r->dev, 5000 * 4, MEM_DEVICE);
    NEED(x);
    comm_say(r->all, "bucket %d", 3);
    NEED(r->all->ops->all_reduce(r->all, r->s, x, 5000, DTYPE_F32, COMM_SUM, &r->err) == 0);
    NEED(SYNC() == 0);
    r->dev->ops->free(r->dev, x);
    rank_note_round(r);
    if (r->rank == 1) {
        rank_wait_for_others(r); /* whose sync would hear of it */
        cusim_nccl_break(ncclSystemError);
    }
    reduce_until_it_fails(r, "rank 1: all-reduce of bucket 3 (5,000 fp32) over all ranks: NCCL: "
                             "unhandled system error (broken by cusim_nccl_break); NCCL_DEBUG");
}

static void an_error_of_nccl_reaches_all_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        ranks_run_well(2 + i % 2, i * 4, break_one);
    }
}

static void leave_or_hear(struct rank *r)
{
    rank_open(r);
    rank_note_round(r);
    if (r->rank == 0) {
        rank_wait_for_others(r); /* who may be in the making of the communicator */
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
    ranks_run_well(3, 0, leave_or_hear);
    ranks_run_well(3, NUM_SCHEDULES - 1, leave_or_hear);
}

static void do_without_a_board(struct rank *r)
{
    rank_open(r);
    if (r->rank == 1) {
        stand(r);
    }
    float *x = r->dev->ops->alloc(r->dev, 5000 * 4, MEM_DEVICE);
    NEED(x);
    comm_say(r->all, "bucket %d", 3);
    NEED(r->all->ops->all_reduce(r->all, r->s, x, 5000, DTYPE_F32, COMM_SUM, &r->err) == 0);
    /* Not earlier: a thread that is inside of the call for as long as a deadline is found there. */
    rank_note_round(r);
    NEED(SYNC() == -1);
    NEED(strstr(r->err.text, "all-reduce of bucket 3, 5000 elements over all ranks: a rank did not "
                             "come to all-reduce"));
    r->dev->ops->free(r->dev, x);
    rank_close(r);
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
    struct rank r = {.num = 2, .deadline_ms = LONG_MS};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, do_without_a_board, pids);
    deadlines_pass(&r, pids, 1u << 1);
    ranks_end(&r, pids, 1u << 1);
    ranks_start(&r, abort_without_a_board, pids);
    ranks_end(&r, pids, 0);
}

/* Calls that don't come back, as those that have to connect to a peer first, who isn't there. */
static void be_held(struct rank *r)
{
    rank_open(r);
    NEED(r->all->ops->barrier(r->all, r->s, &r->err) == 0 && SYNC() == 0);
    if (r->rank == 2) {
        stand(r);
    }
    cusim_nccl_hold();
    reduce_until_it_fails(r,
                          "rank 2 on n2 did not come to all-reduce of bucket 3 (5,000 fp32) over "
                          "all ranks within 60.0 s");
}

static void who_is_held_inside_a_call_gets_out(void **state)
{
    (void)state;
    struct rank r = {.num = 3, .deadline_ms = LONG_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, be_held, pids);
    deadline_passes(&r, pids, 2, CALL_JOIN_NUMBER + 2); /* behind the barrier */
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
    struct rank r = {.num = 4, .deadline_ms = LONG_MS, .has_board = true, .stands = 2};
    struct comm_host_missing missing = {.rank = -1};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, be_told, pids);
    size_t bytes = comm_host_segment_bytes(r.num, 1 << 20);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
    assert_true(segment != MAP_FAILED);
    wait_until_missing(&r, segment, 2, CALL_OF_NOBODY);
    assert_true(comm_host_segment_waits_for(segment, 2, &missing));
    assert_string_equal(missing.call, "all-reduce of bucket 3 (5,000 fp32) over all ranks");
    assert_int_equal(missing.call_number, CALL_OF_NOBODY);
    comm_host_segment_abort(segment, 2, "rank 2: stood still for 20 s");
    munmap(segment, bytes);
    ranks_end(&r, pids, 1u << 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
        cmocka_unit_test(a_killed_rank_frees_the_others),
        cmocka_unit_test(nccl_says_that_a_rank_is_gone_where_nobody_else_does),
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(a_sync_behind_an_abort_fails_whatever_had_come),
        cmocka_unit_test(calls_in_another_order_end_at_the_deadline),
        cmocka_unit_test(an_error_of_nccl_reaches_all_ranks),
        cmocka_unit_test(who_aborts_frees_all),
        cmocka_unit_test(without_a_board_nobody_hangs_either),
        cmocka_unit_test(who_is_held_inside_a_call_gets_out),
        cmocka_unit_test(who_looks_on_sees_which_rank_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
