/* Communicators of the plug-in (NCCL) between processes that all take device 0: every call once,
 * with its values, and how long a large one takes. NCCL refuses two ranks on one GPU; a simulated
 * one is each process's own. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/plugin.h"
#include "runtime/comm/comm_host.h"
#include "runtime/comm/comm_provider.h"
#include "tests/gpu/bench.h"

#define MAX_RANKS 8
#define DEADLINE_MS 20000
#define N 1000

struct shared {
    _Atomic bool has_id;
    unsigned char id[COMM_ID_MAX];
};

struct side {
    struct bench b;
    struct stream *queue;
    struct comm *c;
    int rank, num;
    float *mem, *host; /* of N * num numbers; the device's is twice as large */
};

static void put(struct side *x, int64_t n, float first, float step)
{
    struct error err = {0};
    for (int64_t i = 0; i < n; i++)
        x->host[i] = first + step * (float)i;
    BENCH_TRY(x->b.dev->ops->copy(x->b.dev, x->queue, x->mem, x->host, (size_t)n * sizeof(float),
                                  COPY_TO_DEVICE, &err));
    BENCH_TRY(x->b.dev->ops->stream_sync(x->b.dev, x->queue, &err));
}

/* What is there has to be first + step * i. */
static void check(struct side *x, const char *what, const float *mem, int64_t n, float first,
                  float step)
{
    struct error err = {0};
    BENCH_TRY(x->b.dev->ops->copy(x->b.dev, x->queue, x->host, mem, (size_t)n * sizeof(float),
                                  COPY_TO_HOST, &err));
    BENCH_TRY(x->b.dev->ops->stream_sync(x->b.dev, x->queue, &err));
    for (int64_t i = 0; i < n; i++) {
        float want = first + step * (float)i;
        if (x->host[i] != want) {
            error_set(&err, ERR_INTERNAL, "rank %d: %s: number %lld is %g, not %g", x->rank, what,
                      (long long)i, (double)x->host[i], (double)want);
            bench_die(&err);
        }
    }
    if (x->rank == 0)
        printf("{\"row\": \"comm\", \"call\": \"%s\", \"ranks\": %d, \"right\": true}\n", what,
               x->num);
}

/* Numbers are whole and small: sums are exact in any order. */
static void check_calls(struct side *x)
{
    struct error err = {0};
    const struct comm_ops *ops = x->c->ops;
    float num = (float)x->num, rank = (float)x->rank, sum = num * (num - 1) / 2;
    put(x, N, rank, 1);
    BENCH_TRY(ops->all_reduce(x->c, x->queue, x->mem, N, DTYPE_F32, COMM_SUM, &err));
    check(x, "all_reduce sum", x->mem, N, sum, num);
    put(x, N, rank, 1);
    BENCH_TRY(ops->all_reduce(x->c, x->queue, x->mem, N, DTYPE_F32, COMM_MAX, &err));
    check(x, "all_reduce max", x->mem, N, num - 1, 1);
    float *behind = x->mem + (int64_t)N * x->num;
    put(x, (int64_t)N * x->num, rank, 1);
    BENCH_TRY(ops->reduce_scatter(x->c, x->queue, behind, x->mem, N, DTYPE_F32, &err));
    check(x, "reduce_scatter", behind, N, sum + num * N * rank, num);
    put(x, N, N * rank, 1);
    BENCH_TRY(ops->all_gather(x->c, x->queue, behind, x->mem, N, DTYPE_F32, &err));
    check(x, "all_gather", behind, (int64_t)N * x->num, 0, 1);
    put(x, N, rank, 1);
    BENCH_TRY(ops->broadcast(x->c, x->queue, x->mem, N, DTYPE_F32, x->num - 1, &err));
    check(x, "broadcast", x->mem, N, num - 1, 1);
    BENCH_TRY(ops->barrier(x->c, x->queue, &err));
    check(x, "barrier", x->mem, N, num - 1, 1);
    if (x->num == 1)
        return;
    put(x, N, rank, 1);
    BENCH_TRY(ops->group_begin(x->c, &err));
    BENCH_TRY(ops->send(x->c, x->queue, x->mem, N, DTYPE_F32, (x->rank + 1) % x->num, &err));
    BENCH_TRY(
        ops->recv(x->c, x->queue, behind, N, DTYPE_F32, (x->rank + x->num - 1) % x->num, &err));
    BENCH_TRY(ops->group_end(x->c, x->queue, &err));
    check(x, "send and recv", behind, N, (float)((x->rank + x->num - 1) % x->num), 1);
}

static void time_all_reduce(struct side *x)
{
    struct error err = {0};
    int64_t n = x->b.tiny ? 1000 : (int64_t)64 << 20;
    int num = x->b.tiny ? 1 : 10;
    float *mem = bench_zeros(&x->b, (size_t)n * sizeof(float));
    int64_t start_ns = 0;
    for (int i = -2; i < num; i++) {
        if (i == 0) {
            BENCH_TRY(x->b.dev->ops->stream_sync(x->b.dev, x->queue, &err));
            start_ns = clock_mono_ns();
        }
        BENCH_TRY(x->c->ops->all_reduce(x->c, x->queue, mem, n, DTYPE_F32, COMM_SUM, &err));
    }
    BENCH_TRY(x->b.dev->ops->stream_sync(x->b.dev, x->queue, &err));
    if (x->rank == 0)
        printf("{\"row\": \"comm_time\", \"call\": \"all_reduce\", \"ranks\": %d, \"bytes\": %lld, "
               "\"ms\": %.4g}\n",
               x->num, (long long)n * 4, (double)(clock_mono_ns() - start_ns) / 1e6 / num);
}

static void take_id(const struct comm_provider *provider, struct shared *shared, int rank)
{
    struct error err = {0};
    int64_t end_ms = clock_mono_ms() + DEADLINE_MS;
    if (rank == 0) {
        BENCH_TRY(provider->make_id(shared->id, &err));
        atomic_store(&shared->has_id, true);
    }
    while (!atomic_load(&shared->has_id)) {
        if (clock_mono_ms() > end_ms) {
            error_set(&err, ERR_DEADLINE_EXCEEDED, "rank %d: no id from rank 0", rank);
            bench_die(&err);
        }
        usleep(1000);
    }
}

static void be_rank(struct shared *shared, bool tiny, int fd, int rank, int num)
{
    struct error err = {0};
    struct side x = {.rank = rank, .num = num};
    const struct plugin *plugin;
    struct comm_host_world *host;
    struct comm_world *world;
    int32_t members[MAX_RANKS];
    alarm(3 * DEADLINE_MS / 1000);
    bench_open(&x.b, tiny);
    BENCH_TRY(plugin_cuda(&plugin, &err));
    if (plugin->comm == NULL) {
        error_set(&err, ERR_UNIMPLEMENTED, "the plug-in was built without NCCL");
        bench_die(&err);
    }
    BENCH_TRY(x.b.dev->ops->stream_new(x.b.dev, STREAM_QUEUE, &x.queue, &err));
    BENCH_TRY(comm_host_open(&host, fd, rank, num, DEADLINE_MS, &err));
    take_id(plugin->comm, shared, rank);
    struct comm_provider_options options = {.id = shared->id,
                                            .rank = rank,
                                            .num_ranks = num,
                                            .deadline_ms = DEADLINE_MS,
                                            .board = comm_host_board(host),
                                            .dev = x.b.dev};
    BENCH_TRY(plugin->comm->open(&options, &world, &err));
    for (int i = 0; i < num; i++)
        members[i] = i;
    BENCH_TRY(world->ops->comm_new(world, x.b.dev, members, num, "all", false, &x.c, &err));
    x.mem = bench_zeros(&x.b, 2 * (size_t)N * (size_t)num * sizeof(float));
    x.host = x.b.dev->ops->alloc(x.b.dev, (size_t)N * (size_t)num * sizeof(float), MEM_HOST);
    if (x.host == NULL)
        abort();
    check_calls(&x);
    time_all_reduce(&x);
    x.c->ops->free(x.c);
    x.b.dev->ops->stream_free(x.b.dev, x.queue);
    world->ops->close(world);
    bench_close(&x.b);
    comm_host_close(host);
    fflush(stdout);
}

int bench_comm(bool tiny, int num)
{
    int fd, rc = 0;
    struct error err = {0};
    if (num < 1 || num > MAX_RANKS)
        return 2;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    BENCH_TRY(comm_host_segment_new(num, 1 << 20, &fd, &err));
    fflush(NULL);
    for (int rank = 0; rank < num; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            be_rank(shared, tiny, fd, rank, num);
            _exit(0);
        }
        if (pid < 0)
            abort();
    }
    for (int status; wait(&status) > 0;)
        rc |= status != 0;
    return rc;
}
