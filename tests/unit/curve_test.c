/* server/curve and the metrics table: which rows the shown curve has, and what is left of them when
 * they are thinned out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "server/curve.h"
#include "server/msg.h"
#include "tests/unit/store_fixture.h"

static Metrics *read_curve(struct store *s, int64_t job, GetMetricsRequest r)
{
    static char name[] = "loss";
    static char *loss[] = {name};
    Metrics *m = NULL;
    struct error err = {0};
    r.n_series = 1;
    r.series = loss;
    if (curve_read(s, &r, job, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return m;
}

/* Scenario 31. Attempt 1 reached step 30; attempt 2 went on from 20 and reached 25; attempt 3 went
 * on from 10. The rule: (step, a) is visible iff no later attempt has start_step < step. */
static void the_shown_curve_is_the_latest_attempt_that_covers_a_step(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    store_fixture_attempt(f->s, id, 2, 20);
    store_fixture_attempt(f->s, id, 3, 10);
    for (int64_t s = 1; s <= 30; s++) {
        store_fixture_metric(f->s, id, 1, s, 1000 + (double)s);
    }
    for (int64_t s = 21; s <= 25; s++) {
        store_fixture_metric(f->s, id, 2, s, 2000 + (double)s);
    }
    for (int64_t s = 11; s <= 12; s++) {
        store_fixture_metric(f->s, id, 3, s, 3000 + (double)s);
    }
    Metrics *m = read_curve(f->s, id, (GetMetricsRequest)GET_METRICS_REQUEST__INIT);
    assert_int_equal(m->n_steps, 12);
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(m->steps[i], i + 1);
        assert_int_equal(m->attempts[i], i < 10 ? 1 : 3);
        assert_true(m->columns[0]->values[i] == (i < 10 ? 1001 : 3001) + (double)i);
    }
    msg_free(m);
    /* The old one stays readable. */
    GetMetricsRequest old = GET_METRICS_REQUEST__INIT;
    old.attempt = 2;
    m = read_curve(f->s, id, old);
    assert_int_equal(m->n_steps, 5);
    assert_int_equal(m->steps[0], 21);
    msg_free(m);
    GetMetricsRequest part = GET_METRICS_REQUEST__INIT;
    part.from = 9;
    part.to = 11;
    m = read_curve(f->s, id, part);
    assert_int_equal(m->n_steps, 3);
    msg_free(m);
}

/* A report that comes twice is one row, and the first one stays. */
static void a_row_is_stored_once(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    store_fixture_metric(f->s, id, 1, 1, 0.1);
    store_fixture_metric(f->s, id, 1, 1, 0.2);
    Metrics *m = read_curve(f->s, id, (GetMetricsRequest)GET_METRICS_REQUEST__INIT);
    assert_int_equal(m->n_steps, 1);
    assert_true(m->columns[0]->values[0] == 0.1);
    msg_free(m);
}

static void values_come_back_bit_for_bit_and_a_missing_one_is_nan(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    assert_int_equal(store_begin(f->s, NULL), 0);
    for (int64_t s = 1; s <= 500; s++) {
        store_fixture_metric(f->s, id, 1, s, rng_normal(3, 3, (uint64_t)s));
    }
    store_fixture_metric(f->s, id, 1, 501, (double)NAN);
    store_fixture_metric(f->s, id, 1, 502, (double)INFINITY);
    assert_int_equal(store_commit(f->s, NULL), 0);
    Metrics *m = read_curve(f->s, id, (GetMetricsRequest)GET_METRICS_REQUEST__INIT);
    for (size_t i = 0; i < 500; i++) {
        assert_true(m->columns[0]->values[i] == rng_normal(3, 3, i + 1));
    }
    assert_true(isnan(m->columns[0]->values[500]));
    assert_true(isinf(m->columns[0]->values[501]));
    msg_free(m);
}

static void thinning_keeps_ends_and_extremes_and_the_bound(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    assert_int_equal(store_begin(f->s, NULL), 0);
    double lowest = 1e9, highest = -1e9;
    for (int64_t s = 1; s <= 5000; s++) {
        double loss = rng_normal(5, 5, (uint64_t)s) + (s == 2222 ? 50 : 0) - (s == 3333 ? 60 : 0);
        lowest = loss < lowest ? loss : lowest;
        highest = loss > highest ? loss : highest;
        store_fixture_metric(f->s, id, 1, s, loss);
    }
    assert_int_equal(store_commit(f->s, NULL), 0);
    static const int64_t bounds[] = {4, 5, 7, 100, 999, 4999, 5000, 100000};
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        GetMetricsRequest r = GET_METRICS_REQUEST__INIT;
        r.points = bounds[b];
        Metrics *m = read_curve(f->s, id, r);
        assert_true((int64_t)m->n_steps <= bounds[b]);
        assert_int_equal(m->steps[0], 1);
        assert_int_equal(m->steps[m->n_steps - 1], 5000);
        double min = 1e9, max = -1e9;
        for (size_t i = 0; i < m->n_steps; i++) {
            double v = m->columns[0]->values[i];
            min = v < min ? v : min;
            max = v > max ? v : max;
            assert_true(i == 0 || m->steps[i] > m->steps[i - 1]);
        }
        assert_true(min == lowest && max == highest);
        assert_true(bounds[b] < 100 || (int64_t)m->n_steps > bounds[b] / 3 || m->n_steps == 5000);
        msg_free(m);
    }
    /* All series at once keep the bound too. */
    GetMetricsRequest r = GET_METRICS_REQUEST__INIT;
    Metrics *m;
    for (r.points = 4; r.points < 60; r.points++) {
        assert_int_equal(curve_read(f->s, &r, id, &m, NULL), 0);
        assert_int_equal(m->n_columns, 7);
        assert_true((int64_t)m->n_steps <= r.points);
        msg_free(m);
    }
}

/* Extremes of several series are often the same rows: a falling loss has both at the curve's ends.
 * Who asks for 8 rows of 200 gets 8. */
static void few_points_are_as_many_as_asked_for(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    assert_int_equal(store_begin(f->s, NULL), 0);
    for (int64_t s = 1; s <= 200; s++) {
        store_fixture_metric(f->s, id, 1, s, s == 77 ? 9 : 5 - 0.01 * (double)s);
    }
    assert_int_equal(store_commit(f->s, NULL), 0);
    char *series[] = {(char[]){"loss"}, (char[]){"grad_norm"}};
    for (int64_t points = 4; points <= 128; points++) {
        for (size_t num = 0; num <= 2; num++) { /* 0: all of them */
            GetMetricsRequest r = GET_METRICS_REQUEST__INIT;
            r.points = points;
            r.series = series;
            r.n_series = num;
            Metrics *m;
            assert_int_equal(curve_read(f->s, &r, id, &m, NULL), 0);
            assert_int_equal(m->n_steps, points);
            assert_int_equal(m->steps[0], 1);
            assert_int_equal(m->steps[points - 1], 200);
            bool has_highest = false;
            for (int64_t i = 0; i < points; i++) {
                has_highest = has_highest || m->steps[i] == 77;
                assert_true(i == 0 || m->steps[i] > m->steps[i - 1]);
                assert_true(i == 0 || m->steps[i] - m->steps[i - 1] <= 3 * 200 / (points - 3));
            }
            assert_true(has_highest);
            msg_free(m);
        }
    }
}

static void a_reply_is_bounded_and_says_where_to_go_on(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    assert_int_equal(store_begin(f->s, NULL), 0);
    for (int64_t s = 1; s <= CURVE_ROWS_MAX + 10; s++) {
        store_fixture_metric(f->s, id, 1, s, 1);
    }
    assert_int_equal(store_commit(f->s, NULL), 0);
    GetMetricsRequest r = GET_METRICS_REQUEST__INIT;
    Metrics *m = read_curve(f->s, id, r);
    assert_true(m->truncated);
    assert_int_equal(m->next_from, CURVE_ROWS_MAX + 1);
    r.from = m->next_from;
    msg_free(m);
    m = read_curve(f->s, id, r);
    assert_false(m->truncated);
    assert_int_equal(m->n_steps, 10);
    msg_free(m);
}

static void nonsense_is_refused_in_words(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    char *series[] = {(char[]){"los"}};
    Metrics *m;
    struct error err = {0};
    GetMetricsRequest r = GET_METRICS_REQUEST__INIT;
    r.series = series;
    r.n_series = 1;
    assert_int_equal(curve_read(f->s, &r, id, &m, &err), -1);
    assert_non_null(strstr(err.text, "there is no \"los\""));
    r.n_series = 0;
    r.points = -1;
    assert_int_equal(curve_read(f->s, &r, id, &m, &err), -1);
    r.points = 1;
    assert_int_equal(curve_read(f->s, &r, id, &m, &err), -1);
    r.points = 0;
    assert_int_equal(curve_read(f->s, &r, id, &m, &err), 0); /* no rows yet */
    assert_int_equal(m->n_steps, 0);
    msg_free(m);
}

static bool note_row(void *arg, const StepMetrics *m)
{
    int64_t **next = arg;
    *(*next)++ = m->attempt * 1000 + m->step;
    return true;
}

/* A watcher that comes back gets what it has not seen, in the order of attempts. */
static void rows_after_a_point_are_the_visible_ones_in_order(void **state)
{
    struct store_fixture *f = *state;
    int64_t id = store_fixture_job(f->s, "one");
    store_fixture_attempt(f->s, id, 1, 0);
    store_fixture_attempt(f->s, id, 2, 2);
    for (int64_t s = 1; s <= 4; s++) {
        store_fixture_metric(f->s, id, 1, s, 1);
    }
    store_fixture_metric(f->s, id, 2, 3, 1);
    int64_t rows[16], *next = rows;
    assert_int_equal(store_metric_after(f->s, id, 0, 0, 100, note_row, &next, NULL), 0);
    assert_int_equal(next - rows, 3);
    assert_int_equal(rows[0], 1001);
    assert_int_equal(rows[1], 1002);
    assert_int_equal(rows[2], 2003);
    next = rows;
    assert_int_equal(store_metric_after(f->s, id, 1, 1, 1, note_row, &next, NULL), 0);
    assert_int_equal(next - rows, 1);
    assert_int_equal(rows[0], 1002);
    next = rows;
    assert_int_equal(store_metric_after(f->s, id, 2, 3, 100, note_row, &next, NULL), 0);
    assert_int_equal(next - rows, 0);
}

int main(void)
{
#define WITH_STORE(test)                                                                           \
    cmocka_unit_test_setup_teardown(test, store_fixture_setup, store_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_STORE(the_shown_curve_is_the_latest_attempt_that_covers_a_step),
        WITH_STORE(a_row_is_stored_once),
        WITH_STORE(values_come_back_bit_for_bit_and_a_missing_one_is_nan),
        WITH_STORE(thinning_keeps_ends_and_extremes_and_the_bound),
        WITH_STORE(few_points_are_as_many_as_asked_for),
        WITH_STORE(a_reply_is_bounded_and_says_where_to_go_on),
        WITH_STORE(nonsense_is_refused_in_words),
        WITH_STORE(rows_after_a_point_are_the_visible_ones_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
