#include "tests/unit/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

int store_fixture_setup(void **state)
{
    struct store_fixture *f = calloc(1, sizeof *f);
    struct error err = {0};
    snprintf(f->dir, sizeof f->dir, "/tmp/tandem-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/tandem.db", f->dir);
    if (store_open(&f->s, f->path, &err) != 0) {
        fail_msg("%s", err.text);
    }
    *state = f;
    return 0;
}

int store_fixture_teardown(void **state)
{
    struct store_fixture *f = *state;
    store_close(f->s);
    fs_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

int64_t store_fixture_job(struct store *s, const char *name)
{
    struct job_row row = {.state = JOB_QUEUED,
                          .priority = 500,
                          .devices = 1,
                          .total_steps = 100,
                          .created_us = 1,
                          .loss = (double)NAN};
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.tenant, sizeof row.tenant, "default");
    snprintf(row.user, sizeof row.user, "dev");
    snprintf(row.cause, sizeof row.cause, "new");
    JobSpec spec = JOB_SPEC__INIT;
    spec.name = row.name;
    uint8_t packed[256];
    size_t len = job_spec__pack(&spec, packed);
    assert_int_equal(store_job_insert(s, &row, packed, len, "", 0, NULL), 0);
    return row.id;
}

void store_fixture_attempt(struct store *s, int64_t job, int32_t number, int64_t start_step)
{
    struct attempt_row a = {.number = number,
                            .condition = ATTEMPT_PLANNED,
                            .node = "here",
                            .num_devices = 2,
                            .start_step = start_step,
                            .created_us = 1,
                            .queued_us = 2,
                            .wait_us = 3,
                            .backfills = 4,
                            .borrowed = true};
    a.token_sha256[0] = (uint8_t)number;
    assert_int_equal(store_attempt_insert(s, job, &a, "here:3,there:700", "", 0, NULL), 0);
    struct job_row row;
    assert_int_equal(store_job_get(s, job, &row, NULL), 1);
    row.attempt.number = number;
    assert_int_equal(store_job_update(s, &row, NULL), 0);
}

void store_fixture_metric(struct store *s, int64_t job, int32_t attempt, int64_t step, double loss)
{
    StepMetrics m = STEP_METRICS__INIT;
    m.job_id = job;
    m.attempt = attempt;
    m.step = step;
    m.has_loss = m.has_tokens = 1;
    m.loss = loss;
    m.tokens = step * 100;
    assert_int_equal(store_metric_insert(s, &m, NULL), 0);
}
