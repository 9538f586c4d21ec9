#include "tests/cusim/nccl_ranks.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/deadline.h"

static const char *const hosts[MAX_RANKS] = {"n1", "n1", "n2", "n2"};
static struct shared *ruled; /* that of the ranks that run */

int rank_open_world(struct rank *r)
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

int rank_new_comm(struct rank *r, int32_t first, int32_t step, int32_t num, const char *name,
                  struct comm **out)
{
    int32_t members[MAX_RANKS];
    for (int32_t i = 0; i < num; i++) {
        members[i] = first + i * step;
    }
    return r->world->ops->comm_new(r->world, r->dev, members, num, name, false, out, &r->err);
}

void rank_prepare(struct rank *r)
{
    alarm(100);
    schedule_take(r->schedule % NUM_SCHEDULES);
    NEED(comm_host_open(&r->host, r->fd, r->rank, r->num, r->deadline_ms, &r->err) == 0);
    comm_host_set_hosts(r->host, hosts);
    NEED(cuda_device_open(0, &r->dev, &r->err) == 0);
    NEED(r->dev->ops->stream_new(r->dev, STREAM_QUEUE, &r->s, &r->err) == 0);
}

void rank_open(struct rank *r)
{
    rank_prepare(r);
    NEED(rank_open_world(r) == 0);
    NEED(rank_new_comm(r, 0, 1, r->num, "all ranks", &r->all) == 0);
}

void rank_close(struct rank *r)
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

/* Linked with --wrap: a test lets a deadline pass when all is there that it asks for, and not when
 * this machine takes its time. */
int64_t __real_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void);

int64_t __wrap_clock_mono_ns(void)
{
    return __real_clock_mono_ns() + (ruled ? atomic_load(&ruled->later_ns) : 0);
}

void rank_note_round(struct rank *r)
{
    atomic_fetch_add(&r->shared->num_rounds[r->rank], 1);
}

void rank_wait_for_others(struct rank *r)
{
    for (int32_t i = 0; i < r->num; i++) {
        while (i != r->rank && atomic_load(&r->shared->num_rounds[i]) == 0) {
            clock_sleep_ms(1);
        }
    }
}

void ranks_start(struct rank *r, rank_fn fn, pid_t *pids)
{
    assert_int_equal(comm_nccl_provider.make_id(r->id, NULL), 0);
    assert_int_equal(comm_host_segment_new(r->num, 1 << 20, &r->fd, NULL), 0);
    r->shared =
        mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->shared != MAP_FAILED);
    ruled = r->shared;
    fflush(NULL);
    for (int32_t i = 0; i < r->num; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails, none stands for ever */
            r->rank = i;
            fn(r);
            _exit(0);
        }
    }
}

void ranks_end(struct rank *r, const pid_t *pids, unsigned left_out)
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
    ruled = NULL;
    assert_int_equal(num_wrong, 0);
}

static bool have_left(const struct rank *r, const pid_t *pids, unsigned left_out)
{
    bool left = true;
    for (int32_t i = 0; i < r->num; i++) {
        siginfo_t info = {0};
        bool ended = waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     info.si_pid == pids[i];
        left = left && (ended || (left_out >> i & 1));
    }
    return left;
}

/* From now on until those have left that are not `left_out`: of a deadline that begins meanwhile,
 * the next leap is the end. */
static void leap_until_left(const struct rank *r, const pid_t *pids, unsigned left_out)
{
    for (int i = 0; !have_left(r, pids, left_out); i++) {
        assert_true(i < 600);
        atomic_fetch_add(&r->shared->later_ns, 2 * LONG_MS * INT64_C(1000000));
        for (int k = 0; k < 50 && !have_left(r, pids, left_out); k++) {
            clock_sleep_ms(10);
        }
    }
}

void wait_until_missing(const struct rank *r, void *segment, int32_t missing, uint32_t call_number)
{
    struct comm_host_missing m[MAX_RANKS];
    WAIT_UNTIL(atomic_load(&r->shared->num_rounds[missing]) >= (r->stands ? ROUNDS_OF_ONE : 1),
               "rank %d to stand", (int)missing);
    WAIT_UNTIL(comm_host_segment_missing(segment, m, MAX_RANKS) == 1 && m[0].rank == missing &&
                   m[0].call_number == call_number,
               "rank %d to be missing alone in call %u", (int)missing, (unsigned)call_number);
}

void deadline_passes(const struct rank *r, const pid_t *pids, int32_t missing, uint32_t call_number)
{
    size_t bytes = comm_host_segment_bytes(r->num, 1 << 20);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    assert_true(segment != MAP_FAILED);
    wait_until_missing(r, segment, missing, call_number);
    munmap(segment, bytes);
    leap_until_left(r, pids, 1u << missing);
}

void deadlines_pass(const struct rank *r, const pid_t *pids, unsigned left_out)
{
    for (int32_t i = 0; i < r->num; i++) {
        WAIT_UNTIL(atomic_load(&r->shared->num_rounds[i]) > 0, "the round of rank %d", (int)i);
    }
    leap_until_left(r, pids, left_out);
}

void ranks_run_well(int32_t num, int schedule, rank_fn fn)
{
    struct rank r = {.num = num, .schedule = schedule, .deadline_ms = LONG_MS, .has_board = true};
    pid_t pids[MAX_RANKS];
    ranks_start(&r, fn, pids);
    ranks_end(&r, pids, 0);
}
