/* What the controller can do, against what its disk can: server_bench [SECONDS]
 *
 * Starts a tandemd of its own on a temporary folder below the working directory (the disk that
 * counts), with a rank that trains nothing, and measures, each for SECONDS (2): the disk's own rate
 * of blocks made durable one by one; submissions that are acknowledged as durable, one and sixteen
 * at a time; unary calls; the rows of a curve taken in; submit to first step. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/names.h"
#include "proto/rpc_client.h"

#define DEADLINE_MS 60000
#define MANY 16

extern char **environ;

struct bench {
    char dir[256];
    char target[640];
    pid_t server;
    int64_t span_ns;
};

static _Noreturn void die(const char *what, const struct error *err)
{
    fprintf(stderr, "server_bench: %s: %s\n", what, err ? err->text : strerror(errno));
    exit(1);
}

/* ---- the programs ---- */

static void copy_program(const struct bench *b, const char *from, const char *to)
{
    char src[512], dst[512], *data;
    size_t len;
    struct error err;
    snprintf(src, sizeof src, "%s/%s", TANDEM_BIN_DIR, from);
    snprintf(dst, sizeof dst, "%s/bin/%s", b->dir, to);
    if (fs_read_file(src, (size_t)1 << 30, &data, &len, &err) != 0 ||
        fs_write_atomic(dst, data, len, 0700, &err) != 0) {
        die(from, &err);
    }
    free(data);
}

static void start_server(struct bench *b)
{
    char bin[300], path[320], data[300], log[300];
    struct error err;
    if (!mkdtemp(b->dir)) {
        die(b->dir, NULL);
    }
    char *full = realpath(b->dir, NULL);
    snprintf(b->dir, sizeof b->dir, "%s", full);
    free(full);
    snprintf(bin, sizeof bin, "%s/bin", b->dir);
    if (fs_mkdirs(bin, 0700, &err) != 0) {
        die(bin, &err);
    }
    copy_program(b, "tandemd", "tandemd");
    copy_program(b, "tandem-node", "tandem-node");
    copy_program(b, "tandem-probe", "tandem-probe");
    copy_program(b, "fake_rank", "tandem-rank");
    snprintf(path, sizeof path, "%s/tandemd", bin);
    snprintf(data, sizeof data, "%s/d", b->dir);
    snprintf(log, sizeof log, "%s/log", b->dir);
    snprintf(b->target, sizeof b->target, "unix:%s/tandemd.sock", data);
    setenv("XDG_CONFIG_HOME", b->dir, 1);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT, 0600);
    char *argv[] = {path, "--dev", "--data-dir", data, "--devices", "1", NULL};
    int rc = posix_spawn(&b->server, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        errno = rc;
        die(path, NULL);
    }
}

static struct rpc_channel *connect_to(const struct bench *b)
{
    struct rpc_channel *c;
    struct error err;
    struct rpc_channel_options options = {.target = b->target};
    if (rpc_channel_open(&c, &options, &err) != 0) {
        die("connect", &err);
    }
    return c;
}

/* ---- calls ---- */

static int64_t submit(struct rpc_channel *c, int64_t steps, char *tag)
{
    SourceSpec source = SOURCE_SPEC__INIT;
    source.path = TANDEM_SOURCE_DIR "/tests/golden/llama-tiny/train.bin";
    source.format = "u16";
    SourceSpec *sources[] = {&source};
    ModelSpec model = MODEL_SPEC__INIT;
    model.path = TANDEM_SOURCE_DIR "/tests/golden/llama-tiny";
    DataSpec data = DATA_SPEC__INIT;
    data.train = sources;
    data.n_train = 1;
    TrainingSpec training = TRAINING_SPEC__INIT;
    training.has_steps = training.has_seq_len = training.has_global_batch_size = 1;
    training.steps = steps;
    training.seq_len = 32;
    training.global_batch_size = 4;
    JobSpec spec = JOB_SPEC__INIT;
    spec.name = "bench";
    spec.model = &model;
    spec.data = &data;
    spec.training = &training;
    spec.tags = &tag;
    spec.n_tags = tag ? 1 : 0;
    SubmitRequest request = SUBMIT_REQUEST__INIT;
    request.spec = &spec;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, "/tandem.v1.Jobs/Submit", &request.base, &submit_reply__descriptor, &reply,
                 DEADLINE_MS, &err) != 0) {
        die("submit", &err);
    }
    int64_t id = ((SubmitReply *)reply)->job->id;
    protobuf_c_message_free_unpacked(reply, NULL);
    return id;
}

static void call_job(struct rpc_channel *c, const char *method, int64_t id)
{
    char ref[24];
    snprintf(ref, sizeof ref, "%lld", (long long)id);
    JobRef request = JOB_REF__INIT;
    request.job = ref;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, method, &request.base, &job__descriptor, &reply, DEADLINE_MS, &err) != 0) {
        die(method, &err);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
}

/* False: nobody answers. */
static bool get_info(struct rpc_channel *c)
{
    ServerInfoRequest request = SERVER_INFO_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, "/tandem.v1.Admin/GetServerInfo", &request.base, &server_info__descriptor,
                 &reply, DEADLINE_MS, &err) != 0) {
        return false;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return true;
}

/* Reads a watch of the job's metrics to row `rows` (0 = to the end). */
static void watch(struct rpc_channel *c, int64_t id, int64_t rows)
{
    char ref[24];
    snprintf(ref, sizeof ref, "%lld", (long long)id);
    WatchMetricsRequest request = WATCH_METRICS_REQUEST__INIT;
    request.job = ref;
    struct rpc_stream *s;
    struct error err;
    if (rpc_stream_open(c, "/tandem.v1.Runs/WatchMetrics", &request.base, &s, &err) != 0) {
        die("watch", &err);
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
        die("watch", &err);
    }
    rpc_stream_cancel(s);
    rpc_stream_close(s);
}

/* ---- rates ---- */

struct load {
    struct bench *bench;
    void (*once)(struct rpc_channel *c, int64_t arg);
    int64_t arg;
    int64_t until_ns;
    atomic_llong *count;
};

static void *load_main(void *arg)
{
    struct load *l = arg;
    struct rpc_channel *c = connect_to(l->bench);
    while (clock_mono_ns() < l->until_ns) {
        l->once(c, l->arg);
        atomic_fetch_add(l->count, 1);
    }
    rpc_channel_close(c);
    return NULL;
}

static double rate(struct bench *b, int num_threads, void (*once)(struct rpc_channel *, int64_t),
                   int64_t arg)
{
    pthread_t threads[MANY];
    atomic_llong count = 0;
    int64_t begin = clock_mono_ns();
    struct load l = {.bench = b, .once = once, .arg = arg, .until_ns = begin + b->span_ns};
    l.count = &count;
    for (int i = 0; i < num_threads; i++) {
        if (pthread_create(&threads[i], NULL, load_main, &l) != 0) {
            die("thread", NULL);
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
            die(path, NULL);
        }
    }
    fsync(fd);
    int64_t begin = clock_mono_ns(), n = 0;
    while (clock_mono_ns() - begin < b->span_ns) {
        if (pwrite(fd, block, sizeof block, n % BLOCKS * (off_t)sizeof block) < 0 ||
            fdatasync(fd) != 0) {
            die(path, NULL);
        }
        n++;
    }
    close(fd);
    return (double)n / ((double)(clock_mono_ns() - begin) / 1e9);
}

static void submit_once(struct rpc_channel *c, int64_t arg)
{
    (void)arg;
    submit(c, 1, NULL);
}

static void get_once(struct rpc_channel *c, int64_t id)
{
    call_job(c, "/tandem.v1.Jobs/Get", id);
}

static void info_once(struct rpc_channel *c, int64_t arg)
{
    (void)arg;
    if (!get_info(c)) {
        die("the server is gone", NULL);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void first_steps(struct rpc_channel *c)
{
    enum { RUNS = 20 };
    double ms[RUNS];
    for (int i = 0; i < RUNS; i++) {
        int64_t begin = clock_mono_ns();
        int64_t id = submit(c, 1, NULL);
        watch(c, id, 1);
        ms[i] = (double)(clock_mono_ns() - begin) / 1e6;
        watch(c, id, 0);
    }
    qsort(ms, RUNS, sizeof *ms, by_size);
    printf("submit -> first step        median %.1f ms, worst %.1f ms of %d\n", ms[RUNS / 2],
           ms[RUNS - 1], RUNS);
}

int main(int argc, char **argv)
{
    struct bench b = {.dir = "server-bench-XXXXXX"};
    b.span_ns = (argc > 1 ? atoll(argv[1]) : 2) * 1000000000;
    signal(SIGPIPE, SIG_IGN);
    start_server(&b);
    struct rpc_channel *c = connect_to(&b);
    int64_t until_ms = clock_mono_ms() + DEADLINE_MS;
    while (!get_info(c) && clock_mono_ms() < until_ms) {
        clock_sleep_ms(10);
    }
    int64_t warm = submit(c, 1, NULL);
    watch(c, warm, 0);
    first_steps(c);
    int64_t steps = 50000, begin = clock_mono_ns();
    watch(c, submit(c, steps, NULL), 0);
    printf("rows of a curve             %.0f/s\n",
           (double)steps / ((double)(clock_mono_ns() - begin) / 1e9));
    double disk = sync_rate(&b);
    printf("blocks made durable         %.0f/s (the disk)\n", disk);
    int64_t blocker = submit(c, 2, (char[]){"wait=10000000"});
    double one = rate(&b, 1, submit_once, 0), many = rate(&b, MANY, submit_once, 0);
    printf("durable submits, 1 caller   %.0f/s, %.2f of the disk's rate\n", one, one / disk);
    printf("durable submits, %d callers %.0f/s, %.2f of the disk's rate\n", MANY, many,
           many / disk);
    printf("calls that only io answers  %.0f/s, %d callers\n", rate(&b, MANY, info_once, 0), MANY);
    printf("Jobs.Get                    %.0f/s, %d callers\n", rate(&b, MANY, get_once, warm),
           MANY);
    call_job(c, "/tandem.v1.Jobs/Cancel", blocker);
    rpc_channel_close(c);
    kill(b.server, SIGTERM);
    waitpid(b.server, NULL, 0);
    fs_remove_tree(b.dir, NULL);
    return 0;
}
