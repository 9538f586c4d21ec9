/* What the command line prints and reads, without a server. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "clients/cli/args.h"
#include "clients/cli/curve.h"
#include "clients/cli/duration.h"
#include "clients/cli/generate.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/job_file.h"
#include "clients/cli/plot.h"
#include "clients/cli/progress.h"
#include "clients/cli/table.h"

/* ---- numbers ------------------------------------------------------------------------------- */

/* Three digits tell enough; a number never jumps back at a boundary ("1000" is "1.00k"). */
static void counts_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    assert_string_equal(human_count(h, 0), "0");
    assert_string_equal(human_count(h, 7), "7");
    assert_string_equal(human_count(h, 7.25), "7.2");
    assert_string_equal(human_count(h, 999), "999");
    assert_string_equal(human_count(h, 999.7), "1.00k");
    assert_string_equal(human_count(h, 12345), "12.3k");
    assert_string_equal(human_count(h, 9996), "10.0k");
    assert_string_equal(human_count(h, 999600), "1.00M");
    assert_string_equal(human_count(h, 1.24e9), "1.24B");
    assert_string_equal(human_count(h, -1), "-");
    assert_string_equal(human_count(h, NAN), "-");
}

static void bytes_and_durations_read_well(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    assert_string_equal(human_bytes(h, 512), "512 B");
    assert_string_equal(human_bytes(h, 1.2e9), "1.2 GB");
    assert_string_equal(human_bytes(h, 123456789), "123 MB");
    assert_string_equal(human_duration(h, 0.42), "0.4s");
    assert_string_equal(human_duration(h, 42), "42s");
    assert_string_equal(human_duration(h, 59.7), "1m00s");
    assert_string_equal(human_duration(h, 192), "3m12s");
    assert_string_equal(human_duration(h, 7500), "2h05m");
    assert_string_equal(human_duration(h, 3 * 86400 + 4 * 3600), "3d04h");
    assert_string_equal(human_duration(h, INFINITY), "-");
}

static void losses_keep_five_digits(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    assert_string_equal(human_value(h, 2.31454), "2.3145");
    assert_string_equal(human_value(h, 12.345678), "12.346");
    assert_string_equal(human_value(h, 0), "0");
    assert_string_equal(human_value(h, 1.5e-7), "1.5e-07");
    assert_string_equal(human_value(h, 0.00134956), "0.00135");
    assert_string_equal(human_value(h, NAN), "nan");
}

/* ---- arguments ----------------------------------------------------------------------------- */

struct parsed {
    bool follow, points_given;
    const char *series;
    int64_t points;
    struct arg_texts sets;
    const char *words[2];
    int num;
};

static struct parsed parse(const char *const *list)
{
    struct parsed p = {0};
    const struct arg_flag flags[] = {
        {"follow", 'f', ARG_BOOL, &p.follow, NULL},
        {"series", 's', ARG_TEXT, &p.series, NULL},
        {"points", 'n', ARG_INT, &p.points, &p.points_given},
        {"set", 0, ARG_TEXTS, &p.sets, NULL},
        {0},
    };
    char *argv[16];
    int argc = 0;
    for (; list[argc]; argc++) {
        argv[argc] = (char *)(uintptr_t)list[argc];
    }
    p.num = args_parse(flags, argc, argv, p.words, 2);
    return p;
}
#define PARSE(...) parse((const char *const[]){"verb", __VA_ARGS__, NULL})

static void flags_are_read_in_every_form(void **state)
{
    (void)state;
    struct parsed p =
        PARSE("job", "--series=loss,mfu", "-f", "--points", "20", "--set", "a.b=c", "--set=d=e");
    assert_int_equal(p.num, 1);
    assert_string_equal(p.words[0], "job");
    assert_true(p.follow);
    assert_string_equal(p.series, "loss,mfu");
    assert_true(p.points_given);
    assert_int_equal(p.points, 20);
    assert_int_equal(p.sets.num, 2);
    assert_string_equal(p.sets.items[0], "a.b=c");
    assert_string_equal(p.sets.items[1], "d=e");
    p = PARSE("-n5", "--", "-f");
    assert_int_equal(p.num, 1);
    assert_int_equal(p.points, 5);
    assert_string_equal(p.words[0], "-f");
    assert_false(p.follow);
}

static void bad_flags_are_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--folow").num, -1);
    assert_int_equal(PARSE("--points").num, -1);
    assert_int_equal(PARSE("--points", "x").num, -1);
    assert_int_equal(PARSE("--points", "-3").num, -1);
    assert_int_equal(PARSE("--points", "99999999999999999999").num, -1);
    assert_int_equal(PARSE("--follow=yes").num, -1);
    assert_int_equal(PARSE("a", "b", "c").num, -1);
    assert_int_equal(PARSE("-x").num, -1);
}

static void model_references_are_split_at_the_last_at(void **state)
{
    (void)state;
    char job[16];
    int64_t step;
    assert_true(generate_split_ref("shakespeare", job, sizeof job, &step));
    assert_int_equal(step, -1);
    assert_true(generate_split_ref("7@400", job, sizeof job, &step));
    assert_string_equal(job, "7");
    assert_int_equal(step, 400);
    assert_false(generate_split_ref("7@", job, sizeof job, &step));
    assert_false(generate_split_ref("@4", job, sizeof job, &step));
    assert_false(generate_split_ref("7@last", job, sizeof job, &step));
    assert_false(generate_split_ref("a-name-that-is-too-long", job, sizeof job, &step));
}

/* ---- tables -------------------------------------------------------------------------------- */

static const char *const columns[] = {">id", "name", "note", NULL};

static struct table *small_table(void)
{
    struct table *t = table_new(columns);
    table_cell(t, "1", NULL, NULL);
    table_cell(t, "caf\xC3\xA9", NULL, NULL);
    table_cell(t, "1.2k", "1234", "\033[32m");
    table_cell(t, "10", NULL, NULL);
    table_cell(t, "a,b \"c\"", NULL, NULL);
    table_cell(t, NULL, NULL, NULL);
    return t;
}

static void table_is_aligned_by_characters(void **state)
{
    (void)state;
    struct table *t = small_table();
    struct buf b = {0};
    table_write(t, &b, &(struct table_look){0});
    assert_string_equal(b.data, "ID  NAME     NOTE\n"
                                " 1  caf\xC3\xA9     1.2k\n"
                                "10  a,b \"c\"\n");
    buf_clear(&b);
    table_write(t, &b, &(struct table_look){.colour = true});
    assert_non_null(strstr(b.data, "\033[32m1.2k\033[0m\n"));
    buf_free(&b);
    table_free(t);
}

/* csv carries the raw numbers, and quotes what would break it. */
/* A narrow terminal cuts long words, then leaves out what matters least; lines fit in the end. */
static void a_table_gives_way_to_a_narrow_terminal(void **state)
{
    (void)state;
    static const char *const names[] = {">id", "~name", "state", "user", NULL};
    static const char *const drop[] = {"user", NULL};
    struct table *t = table_new(names);
    table_drop_first(t, drop);
    static const char *const cells[] = {
        "7",  "\xC3\xA9t\xC3\xA9-with-a-long-name", "RUNNING", "ann", "12", "short", "QUEUED",
        "bob"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        table_cell(t, cells[i], NULL, NULL);
    }
    static const struct {
        size_t width;
        bool utf8;
        const char *expected;
    } cases[] = {
        {40, true,
         "ID  NAME                  STATE    USER\n"
         " 7  \xC3\xA9t\xC3\xA9-with-a-long-name  RUNNING  ann\n"
         "12  short                 QUEUED   bob\n"},
        {30, true,
         "ID  NAME         STATE    USER\n"
         " 7  \xC3\xA9t\xC3\xA9-with-a\xE2\x80\xA6  RUNNING  ann\n"
         "12  short        QUEUED   bob\n"},
        {30, false,
         "ID  NAME         STATE    USER\n"
         " 7  \xC3\xA9t\xC3\xA9-with-..  RUNNING  ann\n"
         "12  short        QUEUED   bob\n"},
        {22, true,
         "ID  NAME       STATE\n"
         " 7  \xC3\xA9t\xC3\xA9-with\xE2\x80\xA6  RUNNING\n"
         "12  short      QUEUED\n"},
        {3, true,
         "ID  NAME      STATE\n"
         " 7  \xC3\xA9t\xC3\xA9-wit\xE2\x80\xA6  RUNNING\n"
         "12  short     QUEUED\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b = {0};
        table_write(t, &b, &(struct table_look){.width = cases[i].width, .utf8 = cases[i].utf8});
        assert_string_equal(b.data, cases[i].expected);
        buf_free(&b);
    }
    table_free(t);
}

/* ---- spans and moments --------------------------------------------------------------------- */

static void durations_are_read_with_their_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t s;
    } good[] = {{"90d", 90 * 86400},
                {"12h", 12 * 3600},
                {"30m", 1800},
                {"45s", 45},
                {"2w", 14 * 86400},
                {"1d12h", 129600},
                {"0", 0},
                {"0s", 0},
                {"1h30m5s", 5405},
                {"36500d", (int64_t)36500 * 86400}};
    static const char *const bad[] = {"",
                                      "90",
                                      "d",
                                      "1x",
                                      "1d ",
                                      " 1d",
                                      "-1d",
                                      "30m1h",
                                      "1d1d",
                                      "1.5h",
                                      "99999999999999999999d",
                                      "36601d",
                                      "1d2",
                                      "00"};
    int64_t s;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(duration_read(good[i].text, &s));
        assert_int_equal(s, good[i].s);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (duration_read(bad[i], &s)) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
    }
}

static void moments_are_days_or_spans_back(void **state)
{
    (void)state;
    int64_t us, minute_us;
    assert_true(duration_read_since("2d", 200000000000, &us));
    assert_int_equal(us, 200000000000 - (int64_t)172800 * 1000000);
    assert_true(duration_read_since("2026-03-01", 0, &us));
    assert_true(duration_read_since("2026-03-01 01:30", 0, &minute_us));
    assert_int_equal(minute_us - us, (int64_t)90 * 60 * 1000000);
    assert_true(duration_read_since("2026-03-01T01:30", 0, &us));
    assert_int_equal(us, minute_us);
    assert_false(duration_read_since("yesterday", 0, &us));
    assert_false(duration_read_since("2026-13-01", 0, &us));
    assert_false(duration_read_since("2026-03-01 x", 0, &us));
}

static void csv_is_raw_and_quoted(void **state)
{
    (void)state;
    struct table *t = small_table();
    struct buf b = {0};
    table_write(t, &b, &(struct table_look){.csv = true, .colour = true});
    assert_string_equal(b.data, "id,name,note\n1,caf\xC3\xA9,1234\n10,\"a,b \"\"c\"\"\",\n");
    buf_free(&b);
    table_free(t);
}

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

/* ---- job files ----------------------------------------------------------------------------- */

struct folder {
    char dir[64], file[128], cwd[PATH_MAX];
};

static int make_folder(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/cli_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->file, sizeof f->file, "%s/job.yaml", f->dir);
    assert_non_null(getcwd(f->cwd, sizeof f->cwd));
    *state = f;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *f = *state;
    fs_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

static void write_job(const struct folder *f, const char *text)
{
    assert_int_equal(fs_write_atomic(f->file, text, strlen(text), 0644, NULL), 0);
}

/* Paths of the file count from its folder, those given on the command line from here. */
static void relative_paths_become_absolute(void **state)
{
    struct folder *f = *state;
    write_job(f, "name: x\n"
                 "model: {path: ./models/tiny}\n"
                 "data:\n  train:\n    - {path: a.txt, format: text}\n"
                 "    - {path: /abs/b.txt, format: text}\n"
                 "  validation:\n    - {path: ../c.txt, format: text}\n");
    const char *sets[] = {"training.steps=5", "data.train.0.path=here.txt"};
    struct error err;
    struct job_file job;
    char expected[PATH_MAX + 64];
    assert_int_equal(job_file_read(&job, f->file, NULL, 0, &err), 0);
    snprintf(expected, sizeof expected, "%s/models/tiny", f->dir);
    assert_string_equal(job.spec->model->path, expected);
    snprintf(expected, sizeof expected, "%s/a.txt", f->dir);
    assert_string_equal(job.spec->data->train[0]->path, expected);
    assert_string_equal(job.spec->data->train[1]->path, "/abs/b.txt");
    snprintf(expected, sizeof expected, "%s/../c.txt", f->dir);
    assert_string_equal(job.spec->data->validation[0]->path, expected);
    assert_string_equal(job.spec->data->tokenizer, "bytes");
    job_file_free(&job);

    assert_int_equal(job_file_read(&job, f->file, sets, 2, &err), 0);
    snprintf(expected, sizeof expected, "%s/here.txt", f->cwd);
    assert_string_equal(job.spec->data->train[0]->path, expected);
    assert_int_equal(job.spec->training->steps, 5);
    job_file_free(&job);
}

/* A fault in the file is told with its place; one in --set with its text. */
static void faults_are_told_with_their_place(void **state)
{
    struct folder *f = *state;
    struct error err;
    struct job_file job;
    write_job(f, "name: x\ntraining:\n  stpes: 3\n");
    assert_int_equal(job_file_read(&job, f->file, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "job.yaml:3:3"));
    assert_non_null(strstr(err.text, "steps"));
    write_job(f, "name: x\n");
    const char *const bad[] = {"steps", "=3", "training.stpes=3", "training.steps=many"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(job_file_read(&job, f->file, &bad[i], 1, &err), -1);
        assert_non_null(strstr(err.text, "--set"));
    }
    assert_int_equal(job_file_read(&job, "/nowhere/job.yaml", NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/job.yaml"));
}

/* What the server finds wrong with a field is told with the place where the user wrote it. */
static void faults_found_later_are_told_with_their_place(void **state)
{
    struct folder *f = *state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"training.steps: 0; wants more", "job.yaml:3:3: training.steps: 0; wants more"},
        {"training.seq_len: required", "job.yaml:2:1: training.seq_len: required"},
        {"data.train.0.format: unknown", "job.yaml:6:21: data.train.0.format: unknown"},
        {"data.train: one source", "job.yaml:5:3: data.train: one source"},
        {"retry.max_restarts: x", "job.yaml: retry.max_restarts: x"},
        {"training.optimizer.lr: x", "--set training.optimizer.lr=9: training.optimizer.lr: x"},
        {"training.optimizer: x", "--set training.optimizer.lr=9: training.optimizer: x"},
        {"parallel.data: x", "--set parallel={data: 3}: parallel.data: x"},
        {"training.optimizer.lr_x: y", "job.yaml:2:1: training.optimizer.lr_x: y"},
        {"job 7: no such field", "job 7: no such field"},
        {"spec: missing", "spec: missing"},
        {"the disk is full", "the disk is full"},
    };
    const char *sets[] = {"training.optimizer.lr=9", "parallel={data: 3}"};
    struct job_file job;
    struct error err;
    write_job(
        f, "name: x\ntraining:\n  steps: 0\ndata:\n  train:\n    - {path: a.txt, format: text}\n");
    assert_int_equal(job_file_read(&job, f->file, sets, 2, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error_set(&err, ERR_INVALID_ARGUMENT, "%s", cases[i].text);
        job_file_place(&job, &err);
        const char *text = err.text;
        if (strncmp(text, f->dir, strlen(f->dir)) == 0) {
            text += strlen(f->dir) + 1;
        }
        assert_string_equal(text, cases[i].expected);
    }
    job_file_free(&job);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void states_are_words(void **state)
{
    (void)state;
    assert_string_equal(job_state_word(JOB_RUNNING), "RUNNING");
    assert_string_equal(job_state_word((JobState)99), "UNKNOWN");
    assert_true(job_has_ended(JOB_CANCELLED));
    assert_false(job_has_ended(JOB_PAUSED));
}

static void layout_names_the_axes_above_one(void **state)
{
    (void)state;
    char text[128];
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    ParallelChoice choice = PARALLEL_CHOICE__INIT;
    JobSpec spec = JOB_SPEC__INIT;
    choice.choice_case = PARALLEL_CHOICE__CHOICE_LAYOUT;
    choice.layout = &layout;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "one device");
    spec.parallel = &choice;
    layout.data = 2;
    layout.tensor = 4;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "data 2, tensor 4");
    layout.data = 4;
    layout.sequence_parallel = 1;
    layout.zero_stage = 3;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "data 4, tensor 4 with sequence parallel, ZeRO-3");
    layout.shard_size = 2;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "data 4, tensor 4 with sequence parallel, ZeRO-3 over 2 data ranks");
    char small[8];
    job_layout(&spec, small, sizeof small);
    assert_string_equal(small, "data 4,");
}

static void check_verbs(const struct verb *const *verbs)
{
    for (size_t i = 0; verbs[i]; i++) {
        const struct verb *v = verbs[i];
        assert_true((v->run != NULL) != (v->subverbs != NULL));
        assert_true(strlen(v->name) <= 10 && strlen(v->help) > 5 && strlen(v->text) > 5);
        assert_true(!v->args || v->args[0]); /* NULL: it takes none */
        assert_true(v->help[0] >= 'a' && v->help[0] <= 'z');
        assert_true(v->text[strlen(v->text) - 1] == '\n');
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(v->name, verbs[k]->name);
        }
        if (v->subverbs) {
            check_verbs(v->subverbs);
        }
    }
}

/* Every verb can be found, taught and listed. */
static void every_verb_has_a_name_and_help(void **state)
{
    (void)state;
    check_verbs(cli_verbs);
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_three_digits_and_a_unit),
        cmocka_unit_test(bytes_and_durations_read_well),
        cmocka_unit_test(losses_keep_five_digits),
        cmocka_unit_test(flags_are_read_in_every_form),
        cmocka_unit_test(bad_flags_are_refused),
        cmocka_unit_test(model_references_are_split_at_the_last_at),
        cmocka_unit_test(table_is_aligned_by_characters),
        cmocka_unit_test(csv_is_raw_and_quoted),
        cmocka_unit_test(a_table_gives_way_to_a_narrow_terminal),
        cmocka_unit_test(durations_are_read_with_their_units),
        cmocka_unit_test(moments_are_days_or_spans_back),
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
        IN_FOLDER(relative_paths_become_absolute),
        IN_FOLDER(faults_are_told_with_their_place),
        IN_FOLDER(faults_found_later_are_told_with_their_place),
        cmocka_unit_test(states_are_words),
        cmocka_unit_test(layout_names_the_axes_above_one),
        cmocka_unit_test(every_verb_has_a_name_and_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
