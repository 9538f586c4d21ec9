/* A gang for tests: the same body as so many ranks, as threads of this process or as processes of
 * their own, over one segment. */
#ifndef TANDEM_TESTS_COMM_GANG_H
#define TANDEM_TESTS_COMM_GANG_H

#include <stdint.h>
#include <sys/types.h>

#include "runtime/comm/comm_host.h"

struct gang_rank {
    int32_t rank, size;
    int fd;
    int64_t deadline_ms;
    struct comm_host_world *world;
    struct device dev; /* its host_call runs at once */
    struct comm *all;  /* of every rank */
    void *arg;
    char why[128]; /* what the body found wrong; "" = nothing */
};

typedef void (*gang_body)(struct gang_rank *r);

/* A failed check in a body: notes it and leaves the body. */
#define GANG_CHECK(r, cond)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            snprintf((r)->why, sizeof(r)->why, "line %d: %s", __LINE__, #cond);                    \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Runs the body as `size` threads and returns when all have left. Fails the test with what a body
 * found. */
void gang_run_threads(int32_t size, size_t area_bytes, int64_t deadline_ms, gang_body body,
                      void *arg);
/* Each with a deadline of its own: who has a short one finds who is missing, though another may
 * have been stopped for a while. */
void gang_run_threads_until(int32_t size, const int64_t *deadlines_ms, gang_body body, void *arg);
/* In a body of a gang without area: until another waits for that rank. */
void gang_await_waiter(const struct gang_rank *r, int32_t rank);
/* The same as processes. */
void gang_run_processes(int32_t size, size_t area_bytes, int64_t deadline_ms, gang_body body,
                        void *arg);

/* Processes that the test itself ends: starts them; pids [size]. A body that finds something wrong
 * exits with 1. They die with this process. */
void gang_start(int32_t size, int fd, int64_t deadline_ms, gang_body body, void *arg, pid_t *pids);
/* Only rank 0 has this deadline; the others have all the time. */
void gang_start_until(int32_t size, int fd, int64_t deadline_ms, gang_body body, void *arg,
                      pid_t *pids);
/* The status of one of them that leaves. */
int gang_wait(pid_t pid, int32_t rank);

#endif
