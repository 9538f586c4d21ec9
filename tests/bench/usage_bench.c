/* Admin/GetUsage over a year: usage_bench [JOBS_A_DAY [TENANTS]]
 *
 * Fills a database below the working directory with a year of JOBS_A_DAY (1000) jobs of TENANTS
 * (20), every third of which ran twice, through the statements that the owner uses; then asks what
 * an admin, and what a tenant, may ask. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "server/account.h"
#include "server/msg.h"
#include "server/store/access_rows.h"
#include "server/tenants.h"
#include "server/usage_answer.h"

#define SECOND ((int64_t)1000000)
#define DAY (86400 * SECOND)
#define TIMES 5

static _Noreturn void die(const char *what, const struct error *err)
{
    fprintf(stderr, "usage_bench: %s: %s\n", what, err ? err->text : "");
    exit(1);
}

static void put_attempt(struct store *s, int64_t job, int32_t number, int64_t begin_us,
                        uint64_t draw)
{
    struct error err = {0};
    struct attempt_row a = {.number = number,
                            .condition = ATTEMPT_PLANNED,
                            .num_devices = 1 << rng_u64(2, 0, draw) % 8,
                            .wait_us = (int64_t)(rng_u64(2, 1, draw) % 3600) * SECOND,
                            .created_us = begin_us,
                            .borrowed = draw % 5 == 0};
    int64_t held_us = (int64_t)(rng_u64(2, 2, draw) % 36000) * SECOND;
    memcpy(a.token_sha256, &draw, sizeof draw);
    if (store_attempt_insert(s, job, &a, "n0:0-7", "", 0, &err) != 0) {
        die("an attempt", &err);
    }
    a.condition = ATTEMPT_GONE;
    a.ended_us = a.gone_us = begin_us + held_us;
    a.device_us = account_device_us(a.num_devices, held_us);
    a.evicted = draw % 9 == 0;
    if (store_attempt_update(s, job, &a, &err) != 0) {
        die("an attempt's end", &err);
    }
}

static void fill(struct store *s, int64_t jobs, int64_t tenants, int64_t end_us)
{
    struct error err = {0};
    for (int64_t i = 0; i < tenants; i++) {
        struct tenant_row t = {.created_us = 1};
        snprintf(t.name, sizeof t.name, "tenant%lld", (long long)i);
        if (store_tenant_put(s, &t, &err) != 0) {
            die("a tenant", &err);
        }
    }
    for (int64_t i = 0; i < jobs; i++) {
        struct job_row row = {.name = "bench",
                              .user = "ann",
                              .cause = "finished",
                              .state = JOB_SUCCEEDED,
                              .priority = 500,
                              .devices = 8,
                              .created_us = end_us - 365 * DAY + i * (365 * DAY / jobs)};
        snprintf(row.tenant, sizeof row.tenant, "tenant%llu",
                 (unsigned long long)(rng_u64(1, 0, (uint64_t)i) % (uint64_t)tenants));
        if ((i % 5000 == 0 && i && store_commit(s, &err) != 0) ||
            (i % 5000 == 0 && store_begin(s, &err) != 0) ||
            store_job_insert(s, &row, "spec", 4, "facts", 5, &err) != 0) {
            die("a job", &err);
        }
        row.attempt.number = 1 + (i % 3 == 0);
        for (int32_t n = 1; n <= row.attempt.number; n++) {
            put_attempt(s, row.id, n, row.created_us + n * 10000 * SECOND, (uint64_t)(4 * i + n));
        }
        if (store_job_update(s, &row, &err) != 0) {
            die("a job's end", &err);
        }
    }
    if (store_commit(s, &err) != 0) {
        die("commit", &err);
    }
}

static void ask(struct store *reader, const char *what, int64_t days, const char *tenant,
                bool by_job, int64_t now_us)
{
    double best_ms = 1e30;
    const struct usage_figures f = {.num_devices = 16384};
    GetUsageRequest q = GET_USAGE_REQUEST__INIT;
    q.has_from_us = q.has_by_job = 1;
    q.from_us = now_us - days * DAY;
    q.by_job = by_job;
    int64_t attempts = 0;
    for (int i = 0; i < TIMES; i++) {
        struct error err = {0};
        GetUsageReply *reply;
        int64_t start_ns = clock_mono_ns();
        if (usage_answer(reader, &q, tenant, true, &f, now_us, &reply, &err) != 0) {
            die(what, &err);
        }
        double ms = (double)(clock_mono_ns() - start_ns) / 1e6;
        best_ms = ms < best_ms ? ms : best_ms;
        attempts = 0;
        for (size_t k = 0; k < reply->n_usage; k++) {
            attempts += reply->usage[k]->attempts;
        }
        msg_free(reply);
    }
    printf("%-34s %8.1f ms  (%lld attempts in the rows)\n", what, best_ms, (long long)attempts);
}

int main(int argc, char **argv)
{
    int64_t jobs = 365 * (argc > 1 ? atoll(argv[1]) : 1000);
    int64_t tenants = argc > 2 ? atoll(argv[2]) : 20, now_us = clock_wall_us();
    char dir[] = "usage_bench.XXXXXX", path[64];
    struct store *s, *reader;
    struct error err = {0};
    if (jobs < 1 || tenants < 1 || !mkdtemp(dir)) {
        die("usage: usage_bench [JOBS_A_DAY [TENANTS]]", NULL);
    }
    snprintf(path, sizeof path, "%s/tandem.db", dir);
    if (store_open(&s, path, &err) != 0 || store_open_reader(&reader, path, &err) != 0) {
        die(path, &err);
    }
    fill(s, jobs, tenants, now_us);
    ask(reader, "a year, all tenants", 365, NULL, false, now_us);
    ask(reader, "a year, one tenant", 365, "tenant1", false, now_us);
    ask(reader, "a year, all tenants, by job", 365, NULL, true, now_us);
    ask(reader, "a month, all tenants", 30, NULL, false, now_us);
    ask(reader, "a day, all tenants", 1, NULL, false, now_us);
    int64_t start_ns = clock_mono_ns();
    struct tenants *t = tenants_new(168);
    if (tenants_open(t, s, 0, now_us, &err) != 0) {
        die("tenants", &err);
    }
    printf("%-34s %8.1f ms\n", "use of tenants, at a start",
           (double)(clock_mono_ns() - start_ns) / 1e6);
    tenants_free(t);
    store_close(reader);
    store_close(s);
    const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        char file[80];
        snprintf(file, sizeof file, "%s%s", path, ends[i]);
        unlink(file);
    }
    rmdir(dir);
    return 0;
}
