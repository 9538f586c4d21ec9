/* Curves of a long run: metrics_bench [MILLION_ROWS] [ROWS_PER_S]
 *
 * In a database of its own below the working directory (the disk that counts), through the code
 * that the owner and the query thread use: takes in MILLION_ROWS (10) of one run as fast as it can,
 * then draws curves of 2,000 points, on a connection and thread of their own, while rows come in at
 * ROWS_PER_S (50000), a commit each 10 ms. Beside it, in the same minute: what SQLite's bare insert
 * makes of the same rows, and what reading every row costs, both on a tenth of them; and what a
 * commit costs, beside the disk's own rate of durable blocks. */
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "server/curve.h"
#include "server/msg.h"
#include "server/store/store.h"

#define BATCH 1000
#define CURVES 200
#define SPAN_NS 2000000000

struct bench {
    char dir[64];
    char path[96];
    struct store *writer;
    int64_t job, steps;
    int64_t rate;
    atomic_bool stop;
    int64_t taken_in, took_ns; /* by the writer while curves were drawn */
};

static _Noreturn void die(const char *what, const struct error *err)
{
    fprintf(stderr, "metrics_bench: %s: %s\n", what, err ? err->text : "");
    exit(1);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static void make_job(struct bench *b)
{
    struct error err = {0};
    struct job_row row = {.name = "bench",
                          .tenant = "default",
                          .user = "dev",
                          .cause = "new",
                          .state = JOB_QUEUED,
                          .priority = 500,
                          .devices = 1,
                          .total_steps = 100000000,
                          .created_us = 1};
    struct attempt_row a = {.number = 1, .condition = ATTEMPT_STARTED, .node = "here"};
    if (store_job_insert(b->writer, &row, "", 0, "", 0, &err) != 0 ||
        store_attempt_insert(b->writer, row.id, &a, "", "", 0, &err) != 0) {
        die("job", &err);
    }
    b->job = row.id;
}

/* Values as a trainer reports them: floats, of which some change slowly. */
static StepMetrics row_of(int64_t job, int64_t step)
{
    StepMetrics m = STEP_METRICS__INIT;
    uint64_t bits = rng_u64(1, 2, (uint64_t)step);
    double noise = (double)(bits & 0xffff) / 65536.0;
    m.job_id = job;
    m.step = step;
    m.attempt = 1;
    MSG_SET(&m, loss, (double)(float)(10.0 / (1.0 + (double)step * 1e-4) + noise));
    MSG_SET(&m, grad_norm, (double)(float)(1.0 + (double)((bits >> 16) & 0xffff) / 65536.0));
    MSG_SET(&m, lr, 3e-4 * (1.0 - (double)step * 1e-8));
    MSG_SET(&m, tokens, step * 524288);
    MSG_SET(&m, step_ms, 100.0 + (double)((bits >> 32) & 0xffff) / 65536.0);
    MSG_SET(&m, tokens_per_s, 524288e3 / m.step_ms);
    MSG_SET(&m, mfu, 0.5 + (double)(bits >> 48) / 655360.0);
    return m;
}

/* As the owner does: one transaction, a save point for each report. */
static void take_in(struct bench *b, int64_t num)
{
    struct error err = {0};
    if (store_begin(b->writer, &err) != 0) {
        die("begin", &err);
    }
    for (int64_t i = 0; i < num; i++) {
        StepMetrics m = row_of(b->job, ++b->steps);
        if (store_savepoint(b->writer, &err) != 0 ||
            store_metric_insert(b->writer, &m, &err) != 0 || store_release(b->writer, &err) != 0) {
            die("insert", &err);
        }
    }
    if (store_commit(b->writer, &err) != 0) {
        die("commit", &err);
    }
}

/* ---- the peers ---- */

static void run_sql(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "metrics_bench: %s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
}

/* Rows a second of the bare statement; *read_ms: stepping over all of them, by span extremes. */
static double bare_sqlite(const struct bench *b, int64_t rows, double *read_ms)
{
    char path[128];
    sqlite3 *db;
    sqlite3_stmt *q;
    snprintf(path, sizeof path, "%s/bare.db", b->dir);
    if (sqlite3_open(path, &db) != SQLITE_OK) {
        die(path, NULL);
    }
    run_sql(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                "CREATE TABLE metrics (job INTEGER, step INTEGER, attempt INTEGER, loss REAL, "
                "grad_norm REAL, lr REAL, tokens INTEGER, step_ms REAL, tokens_per_s REAL, "
                "mfu REAL, PRIMARY KEY (job, step, attempt)) STRICT, WITHOUT ROWID");
    sqlite3_prepare_v2(db, "INSERT INTO metrics VALUES (1, ?, 1, ?, ?, ?, ?, ?, ?, ?)", -1, &q,
                       NULL);
    int64_t start = clock_mono_ns();
    for (int64_t step = 1; step <= rows;) {
        run_sql(db, "BEGIN IMMEDIATE");
        for (int i = 0; i < BATCH && step <= rows; i++, step++) {
            StepMetrics m = row_of(1, step);
            const double v[] = {m.loss, m.grad_norm, m.lr, m.step_ms, m.tokens_per_s, m.mfu};
            sqlite3_bind_int64(q, 1, step);
            sqlite3_bind_int64(q, 5, m.tokens);
            for (int k = 0; k < 6; k++) {
                sqlite3_bind_double(q, k < 3 ? 2 + k : 3 + k, v[k]);
            }
            sqlite3_step(q);
            sqlite3_reset(q);
        }
        run_sql(db, "COMMIT");
    }
    double rate = (double)rows * 1e9 / (double)(clock_mono_ns() - start);
    sqlite3_finalize(q);
    start = clock_mono_ns();
    run_sql(db, "SELECT min(loss), max(loss) FROM metrics WHERE job = 1 GROUP BY step * 1000 / "
                "(SELECT max(step) FROM metrics)");
    *read_ms = (double)(clock_mono_ns() - start) / 1e6;
    sqlite3_close(db);
    return rate;
}

/* ---- commits ---- */

/* Blocks of 4 KB that the disk makes durable, one by one, a second. */
static double disk_rate(const struct bench *b)
{
    char path[128];
    static char block[4096];
    snprintf(path, sizeof path, "%s/blocks", b->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int64_t start = clock_mono_ns(), num = 0;
    while (fd >= 0 && clock_mono_ns() - start < SPAN_NS) {
        if (pwrite(fd, block, sizeof block, num % 4096 * 4096) != sizeof block ||
            fdatasync(fd) != 0) {
            die(path, NULL);
        }
        num++;
    }
    close(fd);
    return (double)num * 1e9 / (double)(clock_mono_ns() - start);
}

/* What one submission writes. */
static void submission(struct store *s, int64_t n)
{
    static const char spec[1200] = "a spec", facts[600] = "facts";
    struct error err = {0};
    char key[32];
    struct job_row row = {.name = "bench",
                          .tenant = "default",
                          .user = "dev",
                          .cause = "new",
                          .state = JOB_QUEUED,
                          .priority = 500,
                          .devices = 1,
                          .created_us = 1};
    Event e = EVENT__INIT;
    snprintf(key, sizeof key, "key-%lld", (long long)n);
    e.kind = (char *)(uintptr_t) "submitted";
    if (store_savepoint(s, &err) != 0 ||
        store_job_insert(s, &row, spec, sizeof spec, facts, sizeof facts, &err) != 0 ||
        store_key_insert(s, "default", "dev", key, (const uint8_t[HASH_BYTES]){0}, row.id, &err) !=
            0) {
        die("submission", &err);
    }
    e.job_id = row.id;
    if (store_event_insert(s, &e, &err) != 0 || store_release(s, &err) != 0) {
        die("submission", &err);
    }
}

/* Submissions a second, so many to a commit. */
static double submit_rate(const struct bench *b, int a_commit)
{
    static int64_t n;
    struct error err = {0};
    int64_t start = clock_mono_ns(), first = n;
    while (clock_mono_ns() - start < SPAN_NS) {
        if (store_begin(b->writer, &err) != 0) {
            die("begin", &err);
        }
        for (int i = 0; i < a_commit; i++) {
            submission(b->writer, n++);
        }
        if (store_commit(b->writer, &err) != 0) {
            die("commit", &err);
        }
    }
    return (double)(n - first) * 1e9 / (double)(clock_mono_ns() - start);
}

/* ---- curves while rows come in ---- */

static void *writer_main(void *arg)
{
    struct bench *b = arg;
    int64_t start = clock_mono_ns(), first = b->steps;
    while (!atomic_load(&b->stop)) {
        int64_t due = (clock_mono_ns() - start) * b->rate / 1000000000 - (b->steps - first);
        if (due > 0) {
            take_in(b, due < BATCH ? due : BATCH);
        }
        if (due < BATCH) {
            clock_sleep_ms(10);
        }
    }
    b->taken_in = b->steps - first;
    b->took_ns = clock_mono_ns() - start;
    return NULL;
}

/* Processor time of this thread: what a busy machine distorts less. */
static double thread_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void draw(struct store *reader, const struct bench *b, const char *what, bool zoom, bool all)
{
    double ms[CURVES], cpu_ms[CURVES];
    size_t points = 0;
    char loss[] = "loss", *series[] = {loss};
    for (int i = 0; i < CURVES; i++) {
        GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
        struct error err = {0};
        Metrics *m;
        q.points = 2000;
        q.series = series;
        q.n_series = all ? 0 : 1;
        if (zoom) {
            /* From a few thousand steps to all of them, anywhere. */
            int64_t width = b->steps >> rng_u64(3, 4, (uint64_t)i) % 12;
            q.from = 1 + (int64_t)(rng_u64(3, 5, (uint64_t)i) % (uint64_t)(b->steps - width + 1));
            q.to = q.from + width;
        }
        int64_t start = clock_mono_ns();
        double cpu = thread_ms();
        if (store_begin_read(reader, &err) != 0 || curve_read(reader, &q, b->job, &m, &err) != 0) {
            die("curve", &err);
        }
        store_end_read(reader);
        ms[i] = (double)(clock_mono_ns() - start) / 1e6;
        cpu_ms[i] = thread_ms() - cpu;
        points += m->n_steps;
        msg_free(m);
        clock_sleep_ms(10);
    }
    qsort(ms, CURVES, sizeof *ms, by_value);
    qsort(cpu_ms, CURVES, sizeof *cpu_ms, by_value);
    printf("  %-28s p50 %6.2f ms, p99 %6.2f ms; of a processor %6.2f and %6.2f ms; %zu points\n",
           what, ms[CURVES / 2], ms[CURVES * 99 / 100], cpu_ms[CURVES / 2],
           cpu_ms[CURVES * 99 / 100], points / CURVES);
}

int main(int argc, char **argv)
{
    static struct bench b = {.dir = "metrics-bench-XXXXXX"};
    int64_t rows = (argc > 1 ? atol(argv[1]) : 10) * 1000000;
    b.rate = argc > 2 ? atol(argv[2]) : 50000;
    struct error err = {0};
    struct store *reader;
    if (rows < 1000000 || b.rate < 1 || !mkdtemp(b.dir)) {
        die("usage: metrics_bench [MILLION_ROWS] [ROWS_PER_S]", NULL);
    }
    snprintf(b.path, sizeof b.path, "%s/tandem.db", b.dir);
    if (store_open(&b.writer, b.path, &err) != 0 || store_open_reader(&reader, b.path, &err) != 0) {
        die("open", &err);
    }
    make_job(&b);
    double disk = disk_rate(&b);
    printf("submissions made durable: %.0f a second one by one, %.0f by 16 to a commit; blocks by "
           "the disk alone: %.0f\n",
           submit_rate(&b, 1), submit_rate(&b, 16), disk);
    double scan_ms, bare = bare_sqlite(&b, rows / 10, &scan_ms);
    int64_t start = clock_mono_ns();
    while (b.steps < rows) {
        take_in(&b, BATCH);
    }
    double rate = (double)rows * 1e9 / (double)(clock_mono_ns() - start);
    char wal[112];
    snprintf(wal, sizeof wal, "%s-wal", b.path);
    printf("%lld rows taken in: %.0f a second; bare SQLite %.0f (ratio %.2f); %.1f bytes a row on "
           "disk\n",
           (long long)rows, rate, bare, rate / bare, (double)size_of(b.path) / (double)rows);
    printf("reading every one of %lld rows takes %.0f ms\n", (long long)rows / 10, scan_ms);
    pthread_t writer;
    printf("curves of 2000 points while rows come in:\n");
    if (pthread_create(&writer, NULL, writer_main, &b) != 0) {
        die("thread", NULL);
    }
    draw(reader, &b, "the whole run, loss", false, false);
    draw(reader, &b, "the whole run, all series", false, true);
    draw(reader, &b, "any part of it, loss", true, false);
    draw(reader, &b, "any part of it, all series", true, true);
    atomic_store(&b.stop, true);
    pthread_join(writer, NULL);
    printf("meanwhile %.0f rows a second came in (asked for: %lld); the WAL has %.1f MB\n",
           (double)b.taken_in * 1e9 / (double)b.took_ns, (long long)b.rate,
           (double)size_of(wal) / 1e6);
    store_close(reader);
    store_close(b.writer);
    fs_remove_tree(b.dir, NULL);
    return 0;
}
