#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/parallel/comm_gang.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/deadline.h"

/* For all that a body does. */
#define LEAVE_S 600
#define LONG_MS (1000 * LEAVE_S)

static int call_now(struct device *dev, struct stream *s, device_call_fn fn, const void *args,
                    size_t bytes, struct error *err)
{
    (void)dev;
    (void)s;
    _Alignas(16) char copy[DEVICE_CALL_BYTES];
    ASSERT(bytes <= sizeof copy);
    memcpy(copy, args, bytes);
    return fn(copy, err);
}

static const struct device_ops now_ops = {.name = "now", .host_call = call_now};

static void rank_run_body(struct gang_rank *r, gang_body body)
{
    struct error err = {0};
    if (comm_host_open(&r->world, r->fd, r->rank, r->size, r->deadline_ms, &err) != 0) {
        snprintf(r->why, sizeof r->why, "%.100s", err.text);
        return;
    }
    r->dev.ops = &now_ops;
    int32_t members[COMM_HOST_MAX_RANKS];
    for (int32_t i = 0; i < r->size; i++) {
        members[i] = i;
    }
    if (comm_host_comm_new(r->world, &r->dev, members, r->size, &r->all, &err) != 0) {
        snprintf(r->why, sizeof r->why, "%.100s", err.text);
    } else {
        body(r);
        r->all->ops->free(r->all);
    }
    comm_host_close(r->world);
}

struct thread_arg {
    struct gang_rank rank;
    gang_body body;
    pthread_t thread;
};

static void *thread_main(void *p)
{
    struct thread_arg *t = p;
    rank_run_body(&t->rank, t->body);
    return NULL;
}

static void run_threads(int32_t size, size_t area_bytes, const int64_t *deadlines_ms,
                        gang_body body, void *arg)
{
    int fd;
    assert_int_equal(comm_host_segment_new(size, area_bytes, &fd, NULL), 0);
    struct thread_arg *threads = calloc((size_t)size, sizeof *threads);
    for (int32_t i = 0; i < size; i++) {
        threads[i].rank = (struct gang_rank){
            .rank = i, .size = size, .fd = fd, .deadline_ms = deadlines_ms[i], .arg = arg};
        threads[i].body = body;
        assert_int_equal(pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]), 0);
    }
    int num_wrong = 0;
    for (int32_t i = 0; i < size; i++) {
        deadline_begin(LEAVE_S, "the end of rank %d of %d, a thread", (int)i, (int)size);
        pthread_join(threads[i].thread, NULL);
        deadline_end();
        if (threads[i].rank.why[0]) {
            num_wrong++;
            print_error("rank %d of %d: %s\n", (int)i, (int)size, threads[i].rank.why);
        }
    }
    free(threads);
    close(fd);
    assert_int_equal(num_wrong, 0);
}

void gang_run_threads(int32_t size, size_t area_bytes, int64_t deadline_ms, gang_body body,
                      void *arg)
{
    int64_t deadlines_ms[COMM_HOST_MAX_RANKS];
    for (int32_t i = 0; i < size; i++) {
        deadlines_ms[i] = deadline_ms;
    }
    run_threads(size, area_bytes, deadlines_ms, body, arg);
}

void gang_run_threads_until(int32_t size, const int64_t *deadlines_ms, gang_body body, void *arg)
{
    run_threads(size, 0, deadlines_ms, body, arg);
}

void gang_await_waiter(const struct gang_rank *r, int32_t rank)
{
    struct comm_host_missing missing;
    size_t bytes = comm_host_segment_bytes(r->size, 0);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    int64_t until = clock_mono_ms() + 1000 * DEADLINE_S;
    ASSERT(segment != MAP_FAILED);
    while (!comm_host_segment_waits_for(segment, rank, &missing)) {
        ASSERT(clock_mono_ms() < until);
        clock_sleep_ms(1);
    }
    munmap(segment, bytes);
}

static void start(int32_t size, int fd, const int64_t deadlines_ms[2], gang_body body, void *arg,
                  pid_t *pids)
{
    fflush(NULL);
    for (int32_t i = 0; i < size; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            struct gang_rank r = {
                .rank = i, .size = size, .fd = fd, .deadline_ms = deadlines_ms[i > 0], .arg = arg};
            rank_run_body(&r, body);
            if (r.why[0]) {
                fprintf(stderr, "rank %d of %d: %s\n", (int)i, (int)size, r.why);
            }
            _exit(r.why[0] != 0);
        }
    }
}

void gang_start(int32_t size, int fd, int64_t deadline_ms, gang_body body, void *arg, pid_t *pids)
{
    start(size, fd, (int64_t[]){deadline_ms, deadline_ms}, body, arg, pids);
}

void gang_start_until(int32_t size, int fd, int64_t deadline_ms, gang_body body, void *arg,
                      pid_t *pids)
{
    start(size, fd, (int64_t[]){deadline_ms, LONG_MS}, body, arg, pids);
}

int gang_wait(pid_t pid, int32_t rank)
{
    int status = -1;
    deadline_begin(LEAVE_S, "the end of rank %d, process %d", (int)rank, (int)pid);
    pid_t got = waitpid(pid, &status, 0);
    deadline_end();
    assert_int_equal(got, pid);
    return status;
}

void gang_run_processes(int32_t size, size_t area_bytes, int64_t deadline_ms, gang_body body,
                        void *arg)
{
    int fd;
    pid_t pids[COMM_HOST_MAX_RANKS];
    assert_int_equal(comm_host_segment_new(size, area_bytes, &fd, NULL), 0);
    gang_start(size, fd, deadline_ms, body, arg, pids);
    int num_wrong = 0;
    for (int32_t i = 0; i < size; i++) {
        num_wrong += gang_wait(pids[i], i) != 0;
    }
    close(fd);
    assert_int_equal(num_wrong, 0);
}
