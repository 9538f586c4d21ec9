/* A tandemd of a bench's own, on a temporary folder below the working directory (the disk that
 * counts), with a rank that trains nothing; and calls to it. Whatever goes wrong ends the bench. */
#ifndef TANDEM_TESTS_BENCH_BENCH_SERVER_H
#define TANDEM_TESTS_BENCH_BENCH_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "proto/rpc_client.h"

#define DEADLINE_MS 60000

struct bench {
    const char *name;
    char dir[256];
    char target[640];
    pid_t server;
    int64_t span_ns; /* of one measurement */
};

_Noreturn void bench_die(const struct bench *b, const char *what, const struct error *err);
/* Answers when it returns. name: of the bench, for messages and the folder. */
void bench_start(struct bench *b, const char *name);
/* Ends the server and every process that it left, and removes the folder. */
void bench_stop(struct bench *b);
struct rpc_channel *bench_connect(const struct bench *b);

/* A job with at most one tag; its number. */
int64_t bench_submit(const struct bench *b, struct rpc_channel *c, int64_t steps, char *tag);
/* A call about a job that answers with a Job. */
void bench_call_job(const struct bench *b, struct rpc_channel *c, const char *method, int64_t id);
/* False: nobody answers. */
bool bench_get_info(struct rpc_channel *c);

/* Of the server process: resident bytes, and seconds of processor time so far. */
double bench_resident(const struct bench *b);
double bench_cpu_s(const struct bench *b);
int bench_by_size(const void *a, const void *b);

#endif
