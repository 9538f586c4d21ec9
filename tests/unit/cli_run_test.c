/* What the command line draws of a run: curves, progress, plots. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/cli/curve.h"
#include "clients/cli/human.h"
#include "clients/cli/plot.h"
#include "clients/cli/progress.h"

/* ---- curves -------------------------------------------------------------------------------- */

static void add_two_rows(struct curve *c)
{
    double loss[] = {1.0 / 3, NAN}, norm[] = {2.5, INFINITY};
    Column a = COLUMN__INIT, b = COLUMN__INIT;
    a.name = (char[]){"grad_norm"};
    a.n_values = 2;
    a.values = norm;
    b.name = (char[]){"loss"};
    b.n_values = 2;
    b.values = loss;
    Column *list[] = {&a, &b};
    int64_t steps[] = {1, 2};
    int32_t attempts[] = {1, 2};
    Metrics m = METRICS__INIT;
    m.n_columns = 2;
    m.columns = list;
    m.n_steps = m.n_attempts = 2;
    m.steps = steps;
    m.attempts = attempts;
    curve_add(c, &m);
}

/* step and attempt first, then the series in the order asked for, every bit of each number. */
static void curve_csv_has_full_precision_in_the_order_asked_for(void **state)
{
    (void)state;
    struct curve c = {0};
    char words[] = "loss,grad_norm,mfu";
    assert_int_equal(curve_choose(&c, words, NULL), 0);
    add_two_rows(&c);
    struct buf b = {0};
    curve_csv_head(&c, &b);
    assert_string_equal(b.data, "step,attempt,loss,grad_norm,mfu\n");
    buf_clear(&b);
    curve_row(&c, 0, FORMAT_CSV, &b);
    assert_string_equal(b.data, "1,1,0.33333333333333331,2.5,");
    buf_clear(&b);
    curve_row(&c, 1, FORMAT_CSV, &b);
    assert_string_equal(b.data, "2,2,,inf,");
    buf_clear(&b);
    curve_row(&c, 1, FORMAT_JSON, &b);
    assert_string_equal(b.data, "{\"step\": 2, \"attempt\": 2, \"loss\": null, "
                                "\"grad_norm\": null, \"mfu\": null}");
    buf_free(&b);
    curve_free(&c);
}

/* A step that came as a row of columns is the step that a stream would have brought. */
static void step_survives_the_way_through_a_curve(void **state)
{
    (void)state;
    StepMetrics in = STEP_METRICS__INIT, out = STEP_METRICS__INIT;
    in.step = 7;
    in.attempt = 2;
    in.has_loss = in.has_tokens = in.has_mfu = 1;
    in.loss = 2.5;
    in.tokens = 1 << 20;
    in.mfu = 0.25;
    struct curve c = {0};
    curve_choose(&c, NULL, NULL);
    curve_add_step(&c, &in);
    curve_get_step(&c, 0, &out);
    assert_int_equal(out.step, 7);
    assert_int_equal(out.attempt, 2);
    assert_true(out.has_loss && out.loss == 2.5);
    assert_true(out.has_tokens && out.tokens == 1 << 20);
    assert_true(out.has_mfu && out.mfu == 0.25);
    assert_false(out.has_grad_norm || out.has_lr || out.has_step_ms || out.has_tokens_per_s);
    curve_free(&c);
}

static void unknown_series_names_the_nearest(void **state)
{
    (void)state;
    struct curve c = {0};
    struct error err;
    char words[] = "loss,grad_nrom";
    assert_int_equal(curve_choose(&c, words, &err), -1);
    assert_string_equal(err.text, "there is no series \"grad_nrom\"; did you mean grad_norm?");
    assert_int_equal(curve_choose(&c, NULL, &err), 0);
    assert_int_equal(c.num_series, 7);
}

/* ---- progress ------------------------------------------------------------------------------ */

static struct progress some_progress(void)
{
    return (struct progress){.name = "shakespeare",
                             .step = 412,
                             .total_steps = 1000,
                             .loss = 2.31454,
                             .grad_norm = 0.82,
                             .tokens_per_s = 12345,
                             .mfu = 0.412,
                             .eta_s = 192};
}

static void progress_line_has_every_figure(void **state)
{
    (void)state;
    struct progress p = some_progress();
    struct buf b = {0};
    progress_line(&b, &p);
    assert_string_equal(b.data, "step 412/1000 loss 2.3145 grad_norm 0.8200 tokens/s 12.3k "
                                "mfu 41.2% eta 3m12s");
    buf_free(&b);
}

/* A line that is wider than the terminal wraps and leaves rubbish at each redraw. */
static void progress_bar_never_outgrows_the_terminal(void **state)
{
    (void)state;
    struct progress p = some_progress();
    for (int with_note = 0; with_note < 2; with_note++) {
        p.note = with_note ? "QUEUED" : NULL;
        for (int width = 1; width <= 250; width++) {
            struct buf b = {0};
            progress_bar(&b, &p, width, true, false);
            assert_true(human_width(b.data ? b.data : "") < (size_t)width || width == 1);
            buf_clear(&b);
            progress_bar(&b, &p, width, false, false);
            assert_true(strlen(b.data ? b.data : "") < (size_t)width || width == 1);
            buf_free(&b);
        }
    }
}

static void progress_bar_shows_the_important_first(void **state)
{
    (void)state;
    struct progress p = some_progress();
    struct buf b = {0};
    progress_bar(&b, &p, 120, false, false);
    assert_non_null(strstr(b.data, "412/1000"));
    assert_non_null(strstr(b.data, "|g| 0.8200"));
    buf_clear(&b);
    progress_bar(&b, &p, 60, false, false);
    assert_non_null(strstr(b.data, "loss 2.3145"));
    assert_null(strstr(b.data, "|g|"));
    buf_clear(&b);
    p.total_steps = 0;
    p.step = 0;
    p.note = "QUEUED";
    progress_bar(&b, &p, 80, false, false);
    assert_non_null(strstr(b.data, "QUEUED"));
    buf_free(&b);
}

/* ---- plots --------------------------------------------------------------------------------- */

static size_t widest_line(const char *text)
{
    size_t widest = 0;
    while (*text) {
        size_t len = strcspn(text, "\n");
        char line[2048];
        assert_true(len < sizeof line);
        memcpy(line, text, len);
        line[len] = 0;
        widest = human_width(line) > widest ? human_width(line) : widest;
        text += len + (text[len] == '\n');
    }
    return widest;
}

static void plot_falls_from_the_top_left_to_the_bottom_right(void **state)
{
    (void)state;
    double x[50], y[50];
    for (int i = 0; i < 50; i++) {
        x[i] = i + 1;
        y[i] = 5 - 0.08 * i;
    }
    struct plot p = {
        .title = "loss", .x_label = "step", .x = x, .y = y, .n = 50, .width = 60, .height = 15};
    struct buf b = {0};
    plot_draw(&b, &p);
    assert_true(widest_line(b.data) <= 60);
    const char *first = strchr(b.data, '\n') + 1;
    assert_memory_equal(first, "       5 +*", 11);
    assert_non_null(strstr(b.data, "1.08 +"));
    assert_non_null(strstr(b.data, "step"));
    for (const char *c = b.data; *c; c++) {
        assert_true((unsigned char)*c < 128);
    }
    buf_clear(&b);
    p.utf8 = true;
    plot_draw(&b, &p);
    assert_true(widest_line(b.data) <= 60);
    assert_non_null(strstr(b.data, "\xE2\xA0"));
    buf_free(&b);
}

/* A spike of 100 above a curve from 5 to 1 must not make a flat line of it; that something is cut
 * off has to be said. */
static void plot_is_not_flattened_by_a_spike(void **state)
{
    (void)state;
    double x[100], y[100];
    for (int i = 0; i < 100; i++) {
        x[i] = i + 1;
        y[i] = i == 7 ? 100 : 5 - 0.04 * i;
    }
    struct plot p = {.title = "loss", .x = x, .y = y, .n = 100, .width = 60, .height = 15};
    struct buf b = {0};
    plot_draw(&b, &p);
    assert_non_null(strstr(b.data, "1 of 100 lie beyond the edge (1.0400 to 100.00)"));
    assert_null(strstr(b.data, "100 +"));
    buf_clear(&b);
    p.width = 40;
    plot_draw(&b, &p);
    assert_true(widest_line(b.data) <= 40);
    assert_non_null(strstr(b.data, "1 of 100 lie beyond the edge\n"));
    buf_clear(&b);
    y[7] = 4.72;
    plot_draw(&b, &p);
    assert_null(strstr(b.data, "beyond the edge"));
    buf_free(&b);
}

static void spark_has_a_bar_a_cell(void **state)
{
    (void)state;
    double y[] = {8, 8, 4, 4, NAN, NAN, 1, 1};
    struct buf b = {0};
    plot_spark(&b, y, 8, 4);
    assert_string_equal(b.data, "\xE2\x96\x88\xE2\x96\x84 \xE2\x96\x81");
    buf_clear(&b);
    plot_spark(&b, y, 1, 4);
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

/* No number of points, no constant, no NaN and no size breaks it. */
static void plot_stands_odd_data_and_sizes(void **state)
{
    (void)state;
    double x[] = {1, 2, 3, 4}, flat[] = {2, 2, 2, 2}, holes[] = {NAN, 1, INFINITY, -1e300};
    const double *ys[] = {flat, holes};
    for (size_t k = 0; k < 2; k++) {
        for (size_t n = 0; n <= 4; n++) {
            for (int size = 0; size < 200; size += 13) {
                struct plot p = {.title = "t",
                                 .x = x,
                                 .y = ys[k],
                                 .n = n,
                                 .width = size,
                                 .height = size / 2,
                                 .utf8 = n % 2 == 0};
                struct buf b = {0};
                plot_draw(&b, &p);
                assert_true(b.len > 0);
                buf_free(&b);
            }
        }
    }
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curve_csv_has_full_precision_in_the_order_asked_for),
        cmocka_unit_test(step_survives_the_way_through_a_curve),
        cmocka_unit_test(unknown_series_names_the_nearest),
        cmocka_unit_test(progress_line_has_every_figure),
        cmocka_unit_test(progress_bar_never_outgrows_the_terminal),
        cmocka_unit_test(progress_bar_shows_the_important_first),
        cmocka_unit_test(plot_falls_from_the_top_left_to_the_bottom_right),
        cmocka_unit_test(plot_is_not_flattened_by_a_spike),
        cmocka_unit_test(spark_has_a_bar_a_cell),
        cmocka_unit_test(plot_stands_odd_data_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
