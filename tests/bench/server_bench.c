/* What the controller can do, against what its disk can: server_bench [SECONDS]
 *
 * Starts a tandemd of its own on a temporary folder below the working directory (the disk that
 * counts), with a rank that trains nothing, and measures, each for SECONDS (2): the disk's own rate
 * of blocks made durable one by one; submissions that are acknowledged as durable, one and sixteen
 * at a time; unary calls; the rows of a curve taken in; submit to first step. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/names.h"
#include "tests/bench/bench_server.h"

#define MANY 16

/* Reads a watch of the job's metrics to row `rows` (0 = to the end). */
static void watch(const struct bench *b, struct rpc_channel *c, int64_t id, int64_t rows)
{
    char ref[24];
    snprintf(ref, sizeof ref, "%lld", (long long)id);
    WatchMetricsRequest request = WATCH_METRICS_REQUEST__INIT;
    request.job = ref;
    struct rpc_stream *s;
    struct error err;
    if (rpc_stream_open(c, "/tandem.v1.Runs/WatchMetrics", &request.base, &s, &err) != 0) {
        bench_die(b, "watch", &err);
    }
    ProtobufCMessage *reply;
    int rc = 1;
    for (int64_t n = 0; rc == 1 && (rows == 0 || n < rows); n++) {
        rc = rpc_stream_recv(s, &watch_metrics_reply__descriptor, &reply, DEADLINE_MS, &err);
        if (rc == 1) {
            protobuf_c_message_free_unpacked(reply, NULL);
        }
    }
    if (rc < 0) {
        bench_die(b, "watch", &err);
    }
    rpc_stream_cancel(s);
    rpc_stream_close(s);
}

/* ---- rates ---- */

struct load {
    const struct bench *bench;
    void (*once)(const struct bench *b, struct rpc_channel *c, int64_t arg);
    int64_t arg;
    int64_t until_ns;
    atomic_llong *count;
};

static void *load_main(void *arg)
{
    struct load *l = arg;
    struct rpc_channel *c = bench_connect(l->bench);
    while (clock_mono_ns() < l->until_ns) {
        l->once(l->bench, c, l->arg);
        atomic_fetch_add(l->count, 1);
    }
    rpc_channel_close(c);
    return NULL;
}

static double rate(const struct bench *b, int num_threads,
                   void (*once)(const struct bench *, struct rpc_channel *, int64_t), int64_t arg)
{
    pthread_t threads[MANY];
    atomic_llong count = 0;
    int64_t begin = clock_mono_ns();
    struct load l = {.bench = b, .once = once, .arg = arg, .until_ns = begin + b->span_ns};
    l.count = &count;
    for (int i = 0; i < num_threads; i++) {
        if (pthread_create(&threads[i], NULL, load_main, &l) != 0) {
            bench_die(b, "thread", NULL);
        }
    }
    for (int i = 0; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    return (double)atomic_load(&count) / ((double)(clock_mono_ns() - begin) / 1e9);
}

/* Blocks written over and over within a file that doesn't grow: what a log that is used again costs
 * at least. */
static double sync_rate(const struct bench *b)
{
    enum { BLOCKS = 1000 };
    char path[512], block[4096] = {0};
    snprintf(path, sizeof path, "%s/sync", b->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < BLOCKS; i++) {
        if (fs_write_all(fd, block, sizeof block) != 0) {
            bench_die(b, path, NULL);
        }
    }
    fsync(fd);
    int64_t begin = clock_mono_ns(), n = 0;
    while (clock_mono_ns() - begin < b->span_ns) {
        if (pwrite(fd, block, sizeof block, n % BLOCKS * (off_t)sizeof block) < 0 ||
            fdatasync(fd) != 0) {
            bench_die(b, path, NULL);
        }
        n++;
    }
    close(fd);
    return (double)n / ((double)(clock_mono_ns() - begin) / 1e9);
}

static void submit_once(const struct bench *b, struct rpc_channel *c, int64_t arg)
{
    (void)arg;
    bench_submit(b, c, 1, NULL);
}

static void get_once(const struct bench *b, struct rpc_channel *c, int64_t id)
{
    bench_call_job(b, c, "/tandem.v1.Jobs/Get", id);
}

static void info_once(const struct bench *b, struct rpc_channel *c, int64_t arg)
{
    (void)arg;
    if (!bench_get_info(c)) {
        bench_die(b, "the server is gone", NULL);
    }
}

static void first_steps(const struct bench *b, struct rpc_channel *c)
{
    enum { RUNS = 20 };
    double ms[RUNS];
    for (int i = 0; i < RUNS; i++) {
        int64_t begin = clock_mono_ns();
        int64_t id = bench_submit(b, c, 1, NULL);
        watch(b, c, id, 1);
        ms[i] = (double)(clock_mono_ns() - begin) / 1e6;
        watch(b, c, id, 0);
    }
    qsort(ms, RUNS, sizeof *ms, bench_by_size);
    printf("submit -> first step        median %.1f ms, worst %.1f ms of %d\n", ms[RUNS / 2],
           ms[RUNS - 1], RUNS);
}

int main(int argc, char **argv)
{
    struct bench bench = {.span_ns = (argc > 1 ? atoll(argv[1]) : 2) * 1000000000};
    const struct bench *b = &bench;
    bench_start(&bench, "server-bench");
    struct rpc_channel *c = bench_connect(b);
    int64_t warm = bench_submit(b, c, 1, NULL);
    watch(b, c, warm, 0);
    first_steps(b, c);
    int64_t steps = 50000, begin = clock_mono_ns();
    watch(b, c, bench_submit(b, c, steps, NULL), 0);
    printf("rows of a curve             %.0f/s\n",
           (double)steps / ((double)(clock_mono_ns() - begin) / 1e9));
    double disk = sync_rate(b);
    printf("blocks made durable         %.0f/s (the disk)\n", disk);
    bench_submit(b, c, 2, (char[]){"wait=10000000"}); /* what comes after it queues */
    double one = rate(b, 1, submit_once, 0), many = rate(b, MANY, submit_once, 0);
    printf("durable submits, 1 caller   %.0f/s, %.2f of the disk's rate\n", one, one / disk);
    printf("durable submits, %d callers %.0f/s, %.2f of the disk's rate\n", MANY, many,
           many / disk);
    printf("calls that only io answers  %.0f/s, %d callers\n", rate(b, MANY, info_once, 0), MANY);
    printf("Jobs.Get                    %.0f/s, %d callers\n", rate(b, MANY, get_once, warm), MANY);
    rpc_channel_close(c);
    bench_stop(&bench);
    return 0;
}
