/* All-reduce between processes of this host: latency and bandwidth at 2, 4 and 8 ranks, zero-copy
 * (buffers in the shared area) and staged, beside a memcpy of the same size by as many processes
 * at once. Prints medians; judges nothing.
 *
 *   ratio   time of the all-reduce / time of that memcpy: both are bound by memory
 *
 * Usage: comm_bench [RANKS ...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/comm/comm_host.h"

#define MOST_BYTES ((size_t)64 << 20)
#define MOST_ROUNDS 401

static const struct {
    size_t bytes;
    int rounds;
} sizes[] = {{8, 401}, {4096, 401}, {65536, 201}, {1u << 20, 101}, {16u << 20, 15}, {64u << 20, 7}};
#define NUM_SIZES ((int)(sizeof sizes / sizeof *sizes))

/* Medians in microseconds; rank 0 fills it in. */
struct result {
    double zero_copy[NUM_SIZES], staged[NUM_SIZES], copy[NUM_SIZES], imbalanced_ms;
};

static int call_now(struct device *dev, struct stream *s, device_call_fn fn, const void *args,
                    size_t bytes, struct error *err)
{
    (void)dev;
    (void)s;
    _Alignas(16) char copy[DEVICE_CALL_BYTES];
    memcpy(copy, args, bytes);
    return fn(copy, err);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_us(int64_t *ns, int num)
{
    qsort(ns, (size_t)num, sizeof *ns, compare);
    return (double)ns[num / 2] / 1000;
}

static void check(int rc, const struct error *err)
{
    if (rc != 0) {
        fprintf(stderr, "comm_bench: %s\n", err->text);
        _exit(1);
    }
}

static double time_all_reduce(struct comm *c, void *buf, int size_idx)
{
    struct error err;
    int64_t ns[MOST_ROUNDS], n = (int64_t)(sizes[size_idx].bytes / sizeof(float));
    memset(buf, 0, sizes[size_idx].bytes);
    for (int i = -2; i < sizes[size_idx].rounds; i++) {
        check(c->ops->barrier(c, NULL, &err), &err);
        int64_t begin = clock_mono_ns();
        check(c->ops->all_reduce(c, NULL, buf, n, DTYPE_F32, COMM_SUM, &err), &err);
        ns[i < 0 ? 0 : i] = clock_mono_ns() - begin;
    }
    return median_us(ns, sizes[size_idx].rounds);
}

static double time_copy(struct comm *c, char *to, const char *from, int size_idx)
{
    struct error err;
    int64_t ns[MOST_ROUNDS];
    for (int i = -2; i < sizes[size_idx].rounds; i++) {
        check(c->ops->barrier(c, NULL, &err), &err);
        int64_t begin = clock_mono_ns();
        memcpy(to, from, sizes[size_idx].bytes);
        check(c->ops->barrier(c, NULL, &err), &err);
        ns[i < 0 ? 0 : i] = clock_mono_ns() - begin;
    }
    return median_us(ns, sizes[size_idx].rounds);
}

/* 80 ms of work in all, spread over the ranks unevenly, then 1 MB: a barrier that burns the cores
 * while it waits shows here. */
static double time_imbalanced(struct comm *c, void *buf, int rank)
{
    struct error err;
    int64_t ns[9];
    for (int i = 0; i < 9; i++) {
        check(c->ops->barrier(c, NULL, &err), &err);
        int64_t begin = clock_mono_ns(), share = (int64_t)(rank + 1) * 80000000;
        share /= (int64_t)c->size * (c->size + 1) / 2;
        struct timespec cpu;
        int64_t cpu_begin = -1, used = 0;
        while (used < share) {
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
            int64_t now = (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
            cpu_begin = cpu_begin < 0 ? now : cpu_begin;
            used = now - cpu_begin;
        }
        check(c->ops->all_reduce(c, NULL, buf, 1 << 18, DTYPE_F32, COMM_SUM, &err), &err);
        ns[i] = clock_mono_ns() - begin;
    }
    return median_us(ns, 9) / 1000;
}

static void run_rank(int fd, int32_t rank, int32_t num_ranks, struct result *out)
{
    static const struct device_ops ops = {.name = "now", .host_call = call_now};
    struct device dev = {.ops = &ops};
    struct comm_host_world *w;
    struct comm *c;
    struct error err;
    int32_t members[64];
    for (int32_t i = 0; i < num_ranks; i++) {
        members[i] = i;
    }
    check(comm_host_open(&w, fd, rank, num_ranks, 120000, &err), &err);
    check(comm_host_comm_new(w, &dev, members, num_ranks, &c, &err), &err);
    char *shared = comm_host_alloc(w, MOST_BYTES), *own = aligned_alloc(64, MOST_BYTES);
    memset(own, 0, MOST_BYTES);
    memset(shared, 0, MOST_BYTES);
    struct result mine;
    for (int i = 0; i < NUM_SIZES; i++) {
        mine.zero_copy[i] = time_all_reduce(c, shared, i);
        mine.staged[i] = time_all_reduce(c, own, i);
        mine.copy[i] = time_copy(c, own, shared, i);
    }
    mine.imbalanced_ms = time_imbalanced(c, shared, rank);
    if (rank == 0) {
        *out = mine;
    }
    _exit(0);
}

static void bench(int32_t num_ranks)
{
    struct error err;
    int fd, status, num_failed = 0;
    struct result *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(comm_host_segment_new(num_ranks, MOST_BYTES, &fd, &err), &err);
    for (int32_t i = 0; i < num_ranks; i++) {
        if (fork() == 0) {
            run_rank(fd, i, num_ranks, r);
        }
    }
    while (wait(&status) > 0) {
        num_failed += status != 0;
    }
    close(fd);
    if (num_failed) {
        exit(1);
    }
    printf("\n%d ranks\n%12s %14s %14s %14s %8s\n", (int)num_ranks, "bytes", "zero-copy us",
           "staged us", "memcpy us", "ratio");
    for (int i = 0; i < NUM_SIZES; i++) {
        printf("%12zu %14.1f %14.1f %14.1f %8.2f\n", sizes[i].bytes, r->zero_copy[i], r->staged[i],
               r->copy[i], r->zero_copy[i] / r->copy[i]);
    }
    printf("80 ms of work in all, uneven, then 1 MB: %.1f ms\n", r->imbalanced_ms);
    munmap(r, sizeof *r);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("%ld cores\n", sysconf(_SC_NPROCESSORS_ONLN));
    if (argc > 1) {
        for (int i = 1; i < argc; i++) {
            int n = atoi(argv[i]);
            if (n < 1 || n > 64) {
                fprintf(stderr, "comm_bench: %s: 1 to 64 ranks\n", argv[i]);
                return 2;
            }
            bench(n);
        }
        return 0;
    }
    bench(2);
    bench(4);
    bench(8);
    return 0;
}
