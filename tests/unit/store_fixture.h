/* A database in a temporary folder, and jobs in it. */
#ifndef TANDEM_TESTS_UNIT_STORE_FIXTURE_H
#define TANDEM_TESTS_UNIT_STORE_FIXTURE_H

#include "server/store/store.h"

struct store_fixture {
    char dir[64];
    char path[96];
    struct store *s;
};

int store_fixture_setup(void **state);
int store_fixture_teardown(void **state);
/* A queued job of one device; returns its id. */
int64_t store_fixture_job(struct store *s, const char *name);
/* Attempt `number` of the job, going on from start_step. */
void store_fixture_attempt(struct store *s, int64_t job, int32_t number, int64_t start_step);
void store_fixture_metric(struct store *s, int64_t job, int32_t attempt, int64_t step, double loss);

#endif
