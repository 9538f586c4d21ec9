/* The fake nccl: what collectives compute, and what it says of ranks that don't do the same, don't
 * come, or are gone. Ranks are processes here, as in a job; one test has threads. */
#include "tests/cusim/side.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

#define MAX_RANKS 4

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- ranks ---- */

struct rank {
    int rank, num, schedule;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t s;
};

/* In a rank nothing of cmocka may run: a failure is an exit. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %d: not so: %s\n", __FILE__, __LINE__, r->rank,           \
                    #condition);                                                                   \
            _exit(9);                                                                              \
        }                                                                                          \
    } while (0)
#define CUDA(call) NEED((call) == cudaSuccess)
#define NCCL(call) NEED((call) == ncclSuccess)

typedef void (*rank_fn)(struct rank *r);

static void rank_begin(struct rank *r)
{
    cusim_nccl_deadline_ms(60000);
    schedule_take(r->schedule % NUM_SCHEDULES);
    CUDA(cudaStreamCreateWithFlags(&r->s, cudaStreamNonBlocking));
    NCCL(ncclCommInitRank(&r->comm, r->num, r->id, r->rank));
}

static void rank_end(struct rank *r)
{
    CUDA(cudaStreamSynchronize(r->s));
    NCCL(ncclCommDestroy(r->comm));
    CUDA(cudaStreamDestroy(r->s));
}

/* Starts the ranks and collects what they say; codes: exit codes, or minus a signal. */
static void run_ranks(int num, int schedule, rank_fn fn, int *codes, char *text, size_t size)
{
    struct rank r = {.num = num, .schedule = schedule};
    int ends[2];
    pid_t pids[MAX_RANKS];
    assert_int_equal(ncclGetUniqueId(&r.id), ncclSuccess);
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < num; i++) {
        r.rank = i;
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            dup2(ends[1], STDERR_FILENO);
            close(ends[0]);
            close(ends[1]);
            rank_begin(&r);
            fn(&r);
            _exit(0);
        }
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t n;
    char rest[256];
    while ((n = read(ends[0], length + 1 < size ? text + length : rest,
                     length + 1 < size ? size - 1 - length : sizeof rest)) > 0) {
        length += length + 1 < size ? (size_t)n : 0;
    }
    text[length] = 0;
    close(ends[0]);
    for (int i = 0; i < num; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        codes[i] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    }
}

static void run_well(int num, int schedule, rank_fn fn)
{
    int codes[MAX_RANKS];
    char text[4096];
    run_ranks(num, schedule, fn, codes, text, sizeof text);
    for (int i = 0; i < num; i++) {
        if (codes[i] != 0) {
            fail_msg("rank %d of %d, schedule %d: exit %d: %s", i, num, schedule, codes[i], text);
        }
    }
}

static void must_say(const char *text, const char *words)
{
    if (!strstr(text, words)) {
        fail_msg("\"%s\" isn't said in: %s", words, text);
    }
}

/* ---- what they compute ---- */

#define N 37

static float value(int rank, int i)
{
    return (float)((rank + 2) * (i % 11) - 7);
}

static float *put_values(struct rank *r, int n)
{
    float host[N * MAX_RANKS];
    float *mem = NULL;
    for (int i = 0; i < n; i++) {
        host[i] = value(r->rank, i);
    }
    CUDA(cudaMalloc((void **)&mem, sizeof host));
    CUDA(cudaMemcpyAsync(mem, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice, r->s));
    return mem;
}

static void get_values(struct rank *r, float *host, const float *mem, int n)
{
    CUDA(cudaMemcpyAsync(host, mem, (size_t)n * sizeof *host, cudaMemcpyDeviceToHost, r->s));
    CUDA(cudaStreamSynchronize(r->s));
}

static float sum_of(const struct rank *r, int i)
{
    float sum = 0;
    for (int k = 0; k < r->num; k++) {
        sum += value(k, i);
    }
    return sum;
}

static void all_collectives(struct rank *r)
{
    float got[N * MAX_RANKS];
    int num = r->num;
    float *x = put_values(r, N * num), *y = put_values(r, N * num);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->s));
    get_values(r, got, x, N);
    for (int i = 0; i < N; i++) {
        NEED(got[i] == sum_of(r, i));
    }
    NCCL(ncclReduceScatter(y, x, N, ncclFloat, ncclSum, r->comm, r->s));
    get_values(r, got, x, N);
    for (int i = 0; i < N; i++) {
        NEED(got[i] == sum_of(r, r->rank * N + i));
    }
    NCCL(ncclAllGather(y, x, N, ncclFloat, r->comm, r->s));
    get_values(r, got, x, N * num);
    for (int i = 0; i < N * num; i++) {
        NEED(got[i] == value(i / N, i % N));
    }
    NCCL(ncclBroadcast(y, x, N, ncclFloat, num - 1, r->comm, r->s));
    NCCL(ncclReduce(y, x + N - 1, 1, ncclFloat, ncclMax, 0, r->comm, r->s));
    get_values(r, got, x, N);
    for (int i = 0; i < N - 1; i++) {
        NEED(got[i] == value(num - 1, i));
    }
    NEED(r->rank > 0 || got[N - 1] == value(0, 0));
    NCCL(ncclAllReduce(x, x, 0, ncclFloat, ncclSum, r->comm, r->s));
    rank_end(r);
    CUDA(cudaFree(x));
    CUDA(cudaFree(y));
}

static void collectives_agree_on_every_number_of_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        run_well(1 + i % 3, i, all_collectives);
    }
}

/* bf16 sums are rounded once, at the end. */
static void bf16_averages(struct rank *r)
{
    uint16_t host[3] = {0x3f80, 0x3b80, 0x4000}, got[3]; /* 1, 1/256, 2 */
    uint16_t *x;
    CUDA(cudaMalloc((void **)&x, sizeof host));
    CUDA(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, r->s));
    NCCL(ncclAllReduce(x, x, 3, ncclBfloat16, ncclAvg, r->comm, r->s));
    CUDA(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, r->s));
    CUDA(cudaStreamSynchronize(r->s));
    NEED(memcmp(got, host, sizeof host) == 0);
    rank_end(r);
    CUDA(cudaFree(x));
}

static void bf16_is_summed_in_float(void **state)
{
    (void)state;
    run_well(3, 0, bf16_averages);
}

/* Calls of a group go on side by side: each sends to the next and receives from the one before. */
static void send_around(struct rank *r)
{
    float got[N];
    float *x = put_values(r, N), *y = put_values(r, N);
    for (int round = 0; round < 3; round++) {
        NCCL(ncclGroupStart());
        NCCL(ncclSend(x, N, ncclFloat, (r->rank + 1) % r->num, r->comm, r->s));
        NCCL(ncclRecv(y, N, ncclFloat, (r->rank + r->num - 1) % r->num, r->comm, r->s));
        NCCL(ncclGroupEnd());
        get_values(r, got, y, N);
        for (int i = 0; i < N; i++) {
            NEED(got[i] == value((r->rank + r->num - 1) % r->num, i));
        }
    }
    rank_end(r);
    CUDA(cudaFree(x));
    CUDA(cudaFree(y));
}

static void messages_of_a_group_pass_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        run_well(2 + i % 2, i, send_around);
    }
}

/* Two axes of four ranks, and one that isn't in the second. Keys turn the order around. */
static void split_axes(struct rank *r)
{
    ncclComm_t pair, rest;
    int num, rank;
    NCCL(ncclCommSplit(r->comm, r->rank / 2, -r->rank, &pair, NULL));
    NCCL(ncclCommSplit(r->comm, r->rank == 1 ? NCCL_SPLIT_NOCOLOR : 5, 0, &rest, NULL));
    NCCL(ncclCommCount(pair, &num));
    NCCL(ncclCommUserRank(pair, &rank));
    NEED(num == 2 && rank == 1 - r->rank % 2);
    NEED((rest == NULL) == (r->rank == 1));
    float *x = put_values(r, N), got[N];
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, pair, r->s));
    get_values(r, got, x, N);
    for (int i = 0; i < N; i++) {
        NEED(got[i] == value(r->rank / 2 * 2, i) + value(r->rank / 2 * 2 + 1, i));
    }
    if (rest) {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclMax, rest, r->s));
        get_values(r, got, x, N);
        NEED(got[10] == value(2, 10) + value(3, 10));
        NCCL(ncclCommDestroy(rest));
    }
    NCCL(ncclCommDestroy(pair));
    rank_end(r);
    CUDA(cudaFree(x));
}

static void communicators_split_by_color_and_key(void **state)
{
    (void)state;
    run_well(4, 0, split_axes);
    run_well(4, 2, split_axes);
}

static void *one_thread(void *arg)
{
    rank_begin(arg);
    all_collectives(arg);
    return NULL;
}

static void ranks_can_be_threads(void **state)
{
    (void)state;
    setenv("CUSIM_DEVICES", "2", 1);
    struct rank r[2] = {{.rank = 0, .num = 2}, {.rank = 1, .num = 2}};
    pthread_t threads[2];
    assert_int_equal(ncclGetUniqueId(&r[0].id), ncclSuccess);
    r[1].id = r[0].id;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, one_thread, &r[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    unsetenv("CUSIM_DEVICES");
}

/* ---- what goes wrong ---- */

static void different_counts(struct rank *r)
{
    float *x = put_values(r, N);
    NCCL(ncclAllReduce(x, x, 5, ncclFloat, ncclSum, r->comm, r->s));
    NCCL(ncclAllReduce(x, x, r->rank ? 7 : 9, ncclFloat, ncclSum, r->comm, r->s));
    CUDA(cudaStreamSynchronize(r->s));
}

static void different_calls(struct rank *r)
{
    float *x = put_values(r, N);
    if (r->rank == 0) {
        NCCL(ncclAllGather(x, x, 5, ncclFloat, r->comm, r->s));
    } else {
        NCCL(ncclBroadcast(x, x, 5, ncclFloat, 0, r->comm, r->s));
    }
    CUDA(cudaStreamSynchronize(r->s));
}

static void ranks_that_do_not_agree_are_named(void **state)
{
    (void)state;
    int codes[2];
    char text[4096];
    run_ranks(2, 1, different_counts, codes, text, sizeof text);
    assert_true(codes[0] != 0 && codes[1] != 0);
    must_say(text, "call 2 of communicator");
    must_say(text, "all-reduce of 9 f32");
    must_say(text, "all-reduce of 7 f32");
    run_ranks(2, 0, different_calls, codes, text, sizeof text);
    must_say(text, "all-gather of 5 f32");
    must_say(text, "broadcast of 5 f32");
}

static void one_stays_away(struct rank *r)
{
    float *x = put_values(r, N);
    cusim_nccl_deadline_ms(300);
    if (r->rank == 0) {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->s));
        CUDA(cudaStreamSynchronize(r->s));
    } else {
        pause();
    }
}

/* The other one is ended by its parent here. */
static void who_does_not_come_is_named(void **state)
{
    (void)state;
    struct rank r = {.num = 2};
    assert_int_equal(ncclGetUniqueId(&r.id), ncclSuccess);
    pid_t away = fork();
    if (away == 0) {
        r.rank = 1;
        rank_begin(&r);
        one_stays_away(&r);
        _exit(0);
    }
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t waits = fork();
    if (waits == 0) {
        dup2(ends[1], STDERR_FILENO);
        rank_begin(&r);
        one_stays_away(&r);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(waits, &status, 0), waits);
    kill(away, SIGKILL);
    assert_int_equal(waitpid(away, NULL, 0), away);
    char text[2048];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    close(ends[0]);
    must_say(text, "rank 1 hasn't come");
}

/* Nobody may count on a message being on its way before it is received. */
static void both_send_first(struct rank *r)
{
    float *x = put_values(r, N);
    cusim_nccl_deadline_ms(300);
    NCCL(ncclSend(x, N, ncclFloat, 1 - r->rank, r->comm, r->s));
    NCCL(ncclRecv(x, N, ncclFloat, 1 - r->rank, r->comm, r->s));
    CUDA(cudaStreamSynchronize(r->s));
}

static void sends_that_wait_for_each_other_are_found(void **state)
{
    (void)state;
    int codes[2];
    char text[4096];
    run_ranks(2, 0, both_send_first, codes, text, sizeof text);
    assert_true(codes[0] != 0 && codes[1] != 0);
    must_say(text, "send of 37 f32");
}

/* A program with a deadline of its own sees the error, aborts, and its stream is free again; what
 * was to be received is no number. */
static void abort_what_is_broken(struct rank *r)
{
    float *x = put_values(r, N), got[N];
    CUDA(cudaStreamSynchronize(r->s));
    cusim_nccl_break(ncclRemoteError);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->s));
    double until_s = now_s() + 30;
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
        NEED(cudaStreamQuery(r->s) == cudaErrorNotReady);
        NCCL(ncclCommGetAsyncError(r->comm, &error));
        NEED(now_s() < until_s);
    }
    NEED(error == ncclRemoteError);
    NCCL(ncclCommAbort(r->comm));
    get_values(r, got, x, N);
    NEED(got[0] != got[0]);
    CUDA(cudaFree(x));
}

static void broken_communicators_are_reported_and_aborted(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        run_well(2, i, abort_what_is_broken);
    }
}

static void the_other_is_gone(struct rank *r)
{
    float *x = put_values(r, N);
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->s));
    double until_s = now_s() + 30;
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess && now_s() < until_s) {
        cudaStreamQuery(r->s);
        NCCL(ncclCommGetAsyncError(r->comm, &error));
    }
    NEED(error == ncclRemoteError);
    NCCL(ncclCommAbort(r->comm));
    CUDA(cudaStreamSynchronize(r->s));
    CUDA(cudaFree(x));
    fputs("well", stderr);
}

/* Nobody waits for the ranks' processes, and they are gone all the same: SIGCHLD is ignored. */
static void a_rank_whose_process_is_gone_is_an_error(void **state)
{
    (void)state;
    struct rank r = {.num = 2};
    int ends[2];
    char text[512] = "";
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(ncclGetUniqueId(&r.id), ncclSuccess);
    assert_int_equal(pipe(ends), 0);
    for (r.rank = 0; r.rank < 2; r.rank++) {
        if (fork() == 0) {
            dup2(ends[1], STDERR_FILENO);
            rank_begin(&r);
            if (r.rank == 0) {
                the_other_is_gone(&r);
            }
            _exit(0);
        }
    }
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    signal(SIGCHLD, SIG_DFL);
    assert_true(n > 0);
    assert_string_equal(text, "well");
}

/* ---- what doesn't block ---- */

/* Asks until it is done. */
static ncclResult_t wait_for(ncclComm_t c, double seconds)
{
    double until_s = now_s() + seconds;
    ncclResult_t error = ncclInProgress;
    while (error == ncclInProgress && now_s() < until_s) {
        if (ncclCommGetAsyncError(c, &error) != ncclSuccess) {
            return ncclInternalError;
        }
        usleep(200);
    }
    return error;
}

static void split_without_blocking(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t all, part = NULL, rest = r->comm;
    ncclUniqueId id = r->id;
    id.internal[strlen(id.internal)] = 'b';
    config.blocking = 0;
    config.minCTAs = config.maxCTAs = 1;
    NEED(ncclCommInitRankConfig(&all, r->num, id, r->rank, &config) == ncclInProgress);
    NCCL(wait_for(all, 30));
    NEED(ncclCommSplit(all, r->rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &rest, NULL) ==
         ncclInProgress);
    NEED(rest == NULL);
    NCCL(wait_for(all, 30));
    NEED((rest == NULL) == (r->rank == 2));
    ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
    blocking.blocking = 1;
    NEED(ncclCommSplit(all, r->rank / 2, 0, &part, &blocking) == ncclInProgress);
    NEED(ncclCommSplit(all, 0, 0, &rest, NULL) == ncclInvalidUsage); /* one at a time */
    NCCL(wait_for(all, 30));
    float *x = put_values(r, N), got[N];
    NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, part, r->s));
    get_values(r, got, x, N);
    float other = r->rank == 2 ? 0 : value(1 - r->rank, 5);
    NEED(got[5] == value(r->rank, 5) + other);
    NCCL(ncclCommDestroy(part));
    NCCL(ncclCommDestroy(all));
    rank_end(r);
    CUDA(cudaFree(x));
}

static void communicators_are_made_without_blocking(void **state)
{
    (void)state;
    run_well(3, 0, split_without_blocking);
}

/* Rank 1 never comes, first to the making, then to a split: who waits can go. */
static void one_never_comes(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t all, part;
    ncclUniqueId id = r->id;
    config.blocking = 0;
    for (int i = 0; i < 2; i++) {
        id.internal[strlen(r->id.internal)] = (char)('b' + i);
        if (i == 1 || r->rank == 0) {
            NEED(ncclCommInitRankConfig(&all, 2, id, r->rank, &config) == ncclInProgress);
            NEED(wait_for(all, i ? 30 : 0.05) == (i ? ncclSuccess : ncclInProgress));
        }
        if (i == 1 && r->rank == 0) {
            NEED(ncclCommSplit(all, 0, 0, &part, NULL) == ncclInProgress);
            NEED(wait_for(all, 0.05) == ncclInProgress && part == NULL);
        }
        if (i == 1 || r->rank == 0) {
            NCCL(ncclCommAbort(all));
        }
    }
    rank_end(r);
}

static void a_making_that_nobody_joins_can_be_aborted(void **state)
{
    (void)state;
    run_well(2, 0, one_never_comes);
}

static void wrong_configs(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t c;
    config.blocking = 2;
    NEED(ncclCommInitRankConfig(&c, 1, r->id, 0, &config) == ncclInvalidArgument);
    config.blocking = 1;
    config.minCTAs = 3;
    config.maxCTAs = 2;
    NEED(ncclCommSplit(r->comm, 0, 0, &c, &config) == ncclInvalidArgument);
    memset(&config, 0, sizeof config);
    NEED(ncclCommSplit(r->comm, 0, 0, &c, &config) == ncclInvalidArgument);
    NEED(ncclCommSplit(r->comm, -5, 0, &c, NULL) == ncclInvalidArgument);
    rank_end(r);
}

static void a_config_has_to_make_sense(void **state)
{
    (void)state;
    run_well(1, 0, wrong_configs);
}

/* Revoked: what runs ends, and the communicator is still to be aborted. */
static void revoke_it(struct rank *r)
{
    float *x = put_values(r, N), got[N];
    if (r->rank == 0) {
        NCCL(ncclAllReduce(x, x, N, ncclFloat, ncclSum, r->comm, r->s));
        NEED(cudaStreamQuery(r->s) == cudaErrorNotReady);
        NCCL(ncclCommRevoke(r->comm, 0));
        get_values(r, got, x, N);
        NEED(got[0] != got[0]);
    }
    NCCL(ncclCommAbort(r->comm));
    CUDA(cudaStreamSynchronize(r->s));
    CUDA(cudaFree(x));
}

static void a_revoked_communicator_lets_its_streams_go(void **state)
{
    (void)state;
    run_well(2, 0, revoke_it);
    run_well(2, 1, revoke_it);
}

static void wrong_arguments(struct rank *r)
{
    float *x = put_values(r, N);
    ncclComm_t other;
    NEED(ncclAllReduce(x, x, N, ncclUint8, ncclSum, r->comm, r->s) == ncclInvalidArgument);
    NEED(ncclBroadcast(x, x, N, ncclFloat, 2, r->comm, r->s) == ncclInvalidArgument);
    NEED(ncclSend(x, N, ncclFloat, -1, r->comm, r->s) == ncclInvalidArgument);
    NEED(ncclCommInitRank(&other, 2, r->id, 2) == ncclInvalidArgument);
    NEED(ncclGroupEnd() == ncclInvalidUsage);
    rank_end(r);
    CUDA(cudaFree(x));
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    run_well(2, 0, wrong_arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_agree_on_every_number_of_ranks),
        cmocka_unit_test(bf16_is_summed_in_float),
        cmocka_unit_test(messages_of_a_group_pass_each_other),
        cmocka_unit_test(communicators_split_by_color_and_key),
        cmocka_unit_test(ranks_that_do_not_agree_are_named),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(sends_that_wait_for_each_other_are_found),
        cmocka_unit_test(broken_communicators_are_reported_and_aborted),
        cmocka_unit_test(a_rank_whose_process_is_gone_is_an_error),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(communicators_are_made_without_blocking),
        cmocka_unit_test(a_making_that_nobody_joins_can_be_aborted),
        cmocka_unit_test(a_config_has_to_make_sense),
        cmocka_unit_test(a_revoked_communicator_lets_its_streams_go),
        cmocka_unit_test(ranks_can_be_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
