/* What many at once cost the controller: crowd_bench [WATCHERS [CONNECTIONS]], 1000 and 10000.
 *
 * Watchers of one job: from a change that is asked for to the last watcher that has heard of it,
 * beside the time that the bare bytes take through as many sockets; processor time and memory.
 * Connections that say hello and then nothing: their memory, and what a call takes beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/names.h"
#include "tests/bench/bench_server.h"

enum { CHANNELS = 4, CHANGES = 50, CALLS = 2000 };

static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

static double ms_since(int64_t begin_ns)
{
    return (double)(clock_mono_ns() - begin_ns) / 1e6;
}

/* ---- watchers ------------------------------------------------------------------------------- */

static void open_watcher(const struct bench *b, struct rpc_channel *c, struct rpc_stream **out,
                         char *ref)
{
    struct error err;
    WatchRequest request = WATCH_REQUEST__INIT;
    request.job = ref;
    if (rpc_stream_open(c, "/tandem.v1.Jobs/Watch", &request.base, out, &err) != 0) {
        bench_die(b, "watch", &err);
    }
}

/* Reads one reply; true: an event. */
static bool take(const struct bench *b, struct rpc_stream *s)
{
    struct error err;
    ProtobufCMessage *reply;
    if (rpc_stream_recv(s, &watch_reply__descriptor, &reply, DEADLINE_MS, &err) != 1) {
        bench_die(b, "a watcher", &err);
    }
    bool is_event = ((WatchReply *)reply)->event != NULL;
    protobuf_c_message_free_unpacked(reply, NULL);
    return is_event;
}

static void change(const struct bench *b, struct rpc_channel *c, char *ref, int32_t priority)
{
    struct error err;
    ProtobufCMessage *reply;
    SetPriorityRequest request = SET_PRIORITY_REQUEST__INIT;
    request.job = ref;
    request.has_priority = 1;
    request.priority = priority;
    if (rpc_call(c, "/tandem.v1.Jobs/SetPriority", &request.base, &job__descriptor, &reply,
                 DEADLINE_MS, &err) != 0) {
        bench_die(b, "SetPriority", &err);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
}

/* Milliseconds to write and read so many bytes through num sockets, one after the other. */
static double bare_ms(const struct bench *b, int num, int bytes)
{
    int(*pairs)[2] = calloc((size_t)num, sizeof *pairs);
    char data[4096] = {0};
    for (int i = 0; i < num; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]) != 0) {
            bench_die(b, "socketpair", NULL);
        }
    }
    int64_t begin = clock_mono_ns();
    for (int i = 0; i < num; i++) {
        if (write(pairs[i][0], data, (size_t)bytes) != bytes) {
            bench_die(b, "write", NULL);
        }
    }
    for (int i = 0; i < num; i++) {
        if (read(pairs[i][1], data, sizeof data) != bytes) {
            bench_die(b, "read", NULL);
        }
    }
    double ms = ms_since(begin);
    for (int i = 0; i < num; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    free(pairs);
    return ms;
}

static void measure_watchers(const struct bench *b, int num)
{
    struct rpc_channel *channels[CHANNELS], *c = bench_connect(b);
    struct rpc_stream **watchers = calloc((size_t)num, sizeof *watchers);
    char ref[24];
    bench_submit(b, c, 2, (char[]){"wait=10000000"});
    snprintf(ref, sizeof ref, "%lld", (long long)bench_submit(b, c, 1, NULL));
    double alone[CHANGES], all[CHANGES], resident = bench_resident(b);
    int32_t priority = 500;
    for (int i = 0; i < CHANGES; i++) {
        int64_t begin = clock_mono_ns();
        change(b, c, ref, ++priority);
        alone[i] = ms_since(begin);
    }
    for (int i = 0; i < CHANNELS; i++) {
        channels[i] = bench_connect(b);
    }
    for (int i = 0; i < num; i++) {
        open_watcher(b, channels[i % CHANNELS], &watchers[i], ref);
    }
    for (int i = 0; i < num; i++) {
        while (take(b, watchers[i])) { /* up to the job as it stands */
        }
    }
    double held = bench_resident(b) - resident, cpu_s = bench_cpu_s(b);
    for (int i = 0; i < CHANGES; i++) {
        int64_t begin = clock_mono_ns();
        change(b, c, ref, ++priority);
        for (int k = 0; k < num; k++) {
            while (!take(b, watchers[k])) {
            }
        }
        all[i] = ms_since(begin);
    }
    cpu_s = bench_cpu_s(b) - cpu_s;
    qsort(alone, CHANGES, sizeof *alone, bench_by_size);
    qsort(all, CHANGES, sizeof *all, bench_by_size);
    double bare = bare_ms(b, num < 4000 ? num : 4000, 300);
    printf("%d watchers of a job\n", num);
    printf("  a change, nobody watches  %.2f ms median\n", alone[CHANGES / 2]);
    printf("  to the last watcher       %.1f ms median, %.1f ms worst of %d; %.1f x bare sockets\n",
           all[CHANGES / 2], all[CHANGES - 1], CHANGES, all[CHANGES / 2] / bare);
    printf("  processor time            %.1f us an event and watcher\n",
           cpu_s * 1e6 / CHANGES / num);
    printf("  memory                    %.1f KiB a watcher\n", held / 1024 / num);
    for (int i = 0; i < num; i++) {
        rpc_stream_close(watchers[i]);
    }
    for (int i = 0; i < CHANNELS; i++) {
        rpc_channel_close(channels[i]);
    }
    rpc_channel_close(c);
    free(watchers);
}

/* ---- idle connections ------------------------------------------------------------------------ */

static void call_times(const struct bench *b, struct rpc_channel *c, double *median, double *high)
{
    static double us[CALLS];
    for (int i = 0; i < CALLS; i++) {
        int64_t begin = clock_mono_ns();
        if (!bench_get_info(c)) {
            bench_die(b, "the server is gone", NULL);
        }
        us[i] = ms_since(begin) * 1000;
    }
    qsort(us, CALLS, sizeof *us, bench_by_size);
    *median = us[CALLS / 2];
    *high = us[CALLS * 99 / 100];
}

static void measure_idle(const struct bench *b, int num)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < (rlim_t)num + 1000) {
        printf("%d idle connections need as many open files; %llu are allowed\n", num,
               (unsigned long long)limit.rlim_max);
        return;
    }
    struct rpc_channel *c = bench_connect(b);
    double median, high, median_beside, high_beside, resident = bench_resident(b);
    call_times(b, c, &median, &high);
    int *fds = calloc((size_t)num, sizeof *fds);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", b->target + strlen("unix:"));
    for (int i = 0; i < num; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[i] < 0 || connect(fds[i], (struct sockaddr *)&sa, sizeof sa) != 0 ||
            write(fds[i], hello, sizeof hello - 1) < 0) {
            bench_die(b, "connect", NULL);
        }
    }
    char settings[64];
    for (int i = 0; i < num; i++) {
        if (read(fds[i], settings, sizeof settings) <= 0) { /* it says hello, too */
            bench_die(b, "a connection", NULL);
        }
    }
    double held = bench_resident(b) - resident;
    call_times(b, c, &median_beside, &high_beside);
    printf("%d idle connections\n", num);
    printf("  memory                    %.1f KiB a connection\n", held / 1024 / num);
    printf("  a call beside them        %.0f us median, %.0f us of 99 %%; without: %.0f, %.0f\n",
           median_beside, high_beside, median, high);
    for (int i = 0; i < num; i++) {
        close(fds[i]);
    }
    free(fds);
    rpc_channel_close(c);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    bench_start(&b, "crowd-bench");
    measure_watchers(&b, argc > 1 ? atoi(argv[1]) : 1000);
    measure_idle(&b, argc > 2 ? atoi(argv[2]) : 10000);
    bench_stop(&b);
    return 0;
}
