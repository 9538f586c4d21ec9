#include "tests/bench/bench_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "proto/names.h"

extern char **environ;

_Noreturn void bench_die(const struct bench *b, const char *what, const struct error *err)
{
    fprintf(stderr, "%s: %s: %s\n", b->name, what, err ? err->text : strerror(errno));
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
        bench_die(b, from, &err);
    }
    free(data);
}

static void spawn_server(struct bench *b)
{
    char bin[300], path[320], data[300], log[300];
    struct error err;
    if (!mkdtemp(b->dir)) {
        bench_die(b, b->dir, NULL);
    }
    char *full = realpath(b->dir, NULL);
    snprintf(b->dir, sizeof b->dir, "%s", full);
    free(full);
    snprintf(bin, sizeof bin, "%s/bin", b->dir);
    if (fs_mkdirs(bin, 0700, &err) != 0) {
        bench_die(b, bin, &err);
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
        bench_die(b, path, NULL);
    }
}

struct rpc_channel *bench_connect(const struct bench *b)
{
    struct rpc_channel *c;
    struct error err;
    struct rpc_channel_options options = {.target = b->target};
    if (rpc_channel_open(&c, &options, &err) != 0) {
        bench_die(b, "connect", &err);
    }
    return c;
}

void bench_start(struct bench *b, const char *name)
{
    b->name = name;
    snprintf(b->dir, sizeof b->dir, "%s-XXXXXX", name);
    signal(SIGPIPE, SIG_IGN);
    /* What the server leaves running becomes ours. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    spawn_server(b);
    struct rpc_channel *c = bench_connect(b);
    int64_t until_ms = clock_mono_ms() + DEADLINE_MS;
    while (!bench_get_info(c)) {
        if (clock_mono_ms() > until_ms) {
            bench_die(b, "the server doesn't answer", NULL);
        }
        clock_sleep_ms(10);
    }
    rpc_channel_close(c);
}

static void kill_children(void)
{
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    if (f && fgets(line, sizeof line, f)) {
        for (char *p = line, *end; strtol(p, &end, 10) > 0; p = end) {
            kill((pid_t)strtol(p, NULL, 10), SIGKILL);
        }
    }
    if (f) {
        fclose(f);
    }
}

void bench_stop(struct bench *b)
{
    kill(b->server, SIGTERM);
    waitpid(b->server, NULL, 0);
    /* Gangs outlive their controller; this one will have no other. */
    pid_t pid;
    do {
        kill_children();
        pid = waitpid(-1, NULL, 0);
    } while (pid > 0 || errno == EINTR);
    fs_remove_tree(b->dir, NULL);
}

/* ---- calls ---- */

int64_t bench_submit(const struct bench *b, struct rpc_channel *c, int64_t steps, char *tag)
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
        bench_die(b, "submit", &err);
    }
    int64_t id = ((SubmitReply *)reply)->job->id;
    protobuf_c_message_free_unpacked(reply, NULL);
    return id;
}

void bench_call_job(const struct bench *b, struct rpc_channel *c, const char *method, int64_t id)
{
    char ref[24];
    snprintf(ref, sizeof ref, "%lld", (long long)id);
    JobRef request = JOB_REF__INIT;
    request.job = ref;
    ProtobufCMessage *reply;
    struct error err;
    if (rpc_call(c, method, &request.base, &job__descriptor, &reply, DEADLINE_MS, &err) != 0) {
        bench_die(b, method, &err);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
}

bool bench_get_info(struct rpc_channel *c)
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

/* ---- the process ---- */

double bench_resident(const struct bench *b)
{
    char path[64];
    long total, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)b->server);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%ld %ld", &total, &resident) != 2) {
        bench_die(b, path, NULL);
    }
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

double bench_cpu_s(const struct bench *b)
{
    char path[64];
    unsigned long user, kernel;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)b->server);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                     &kernel) != 2) {
        bench_die(b, path, NULL);
    }
    fclose(f);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

int bench_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
